//! Precedence, error texts, secrecy, and the reference page.

use fencepost_core::kind::{OtherExit, Runner};

use super::*;

#[expect(
    clippy::unwrap_in_result,
    reason = "the result is the settings', not the test's"
)]
fn load(
    file: &str,
    environment: &[(&str, &str)],
    flags: &[(&str, &str)],
) -> Result<Settings, SettingsError> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("fencepost.toml");
    std::fs::write(&path, file).unwrap();
    std::fs::write(
        directory.path().join("schema.json"),
        "{\"type\":\"object\"}",
    )
    .unwrap();
    let look_up = |name: &str| {
        let found = environment.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    Settings::load(Sources {
        file: Some(path),
        environment: Some(&look_up),
        flags: flags
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect(),
    })
}

fn error(file: &str, environment: &[(&str, &str)], flags: &[(&str, &str)]) -> String {
    let text = load(file, environment, flags).unwrap_err().to_string();
    assert!(!text.contains('\n'), "one line: {text}");
    text
}

#[test]
fn the_defaults_work_without_a_file() {
    let settings = Settings::load(Sources::default()).unwrap();
    assert_eq!(settings.listen, "127.0.0.1:8080");
    assert_eq!(settings.data_dir, PathBuf::from("./fencepost-data"));
    assert!(settings.amqp_url.is_none());
    assert_eq!(settings.kinds, Kinds::builtin());
}

#[test]
fn flags_win_over_the_environment_and_that_over_the_file() {
    let file = "listen = \"a:1\"\n[relay]\npoll = \"1s\"\n";
    let variable = ("FENCEPOST_LISTEN", "b:2");
    assert_eq!(load(file, &[], &[]).unwrap().listen, "a:1");
    assert_eq!(load(file, &[variable], &[]).unwrap().listen, "b:2");
    let settings = load(file, &[variable], &[("listen", "c:3")]).unwrap();
    assert_eq!(
        (settings.listen.as_str(), settings.relay.poll),
        ("c:3", Duration::from_secs(1))
    );
}

#[test]
fn a_bad_value_names_its_setting_its_source_and_what_is_accepted() {
    assert_eq!(
        error("", &[("FENCEPOST_RELAY_POLL", "soon")], &[]),
        "setting `relay.poll` (from FENCEPOST_RELAY_POLL): found `soon`, expected a duration such as 500ms, 30s, 5m or 1h"
    );
    assert_eq!(
        error("", &[], &[("concurrency", "0")]),
        "setting `concurrency` (from --concurrency): found `0`, expected a whole number of at least 1"
    );
    assert_eq!(
        error("", &[("FENCEPOST_AMQP_HEARTBEAT", "1m")], &[]),
        "setting `amqp.heartbeat` (from FENCEPOST_AMQP_HEARTBEAT): found `1m`, expected 1s to 30s"
    );
    assert!(error("log_format = \"xml\"", &[], &[]).contains("found `xml`, expected text or json"));
    assert!(error("queues = [\"a b\"]", &[], &[]).contains("setting `queues`"));
}

#[test]
fn an_unknown_key_is_an_error_with_the_nearest_known_one() {
    let text = error("[relay]\npol = \"1s\"", &[], &[]);
    assert!(
        text.ends_with("has an unknown key `relay.pol`; did you mean `relay.poll`?"),
        "{text}"
    );
    let text = error("listen = ", &[], &[]);
    assert!(text.contains("cannot be read: line 1:"), "{text}");
}

#[test]
fn a_named_file_must_exist() {
    let missing = Sources {
        file: Some("/nowhere/fencepost.toml".into()),
        ..Sources::default()
    };
    let text = Settings::load(missing).unwrap_err().to_string();
    assert!(
        text.starts_with("the settings file /nowhere/fencepost.toml cannot be read"),
        "{text}"
    );
}

#[test]
fn secrets_are_never_shown() {
    let settings = load(
        "amqp_url = \"amqp://user:CANARY1@host\"",
        &[
            ("FENCEPOST_API_KEY", "CANARY2"),
            ("FENCEPOST_BLOBS_S3_SECRET_ACCESS_KEY", "CANARY3"),
            ("FENCEPOST_DATABASE_URL", "postgres://u:CANARY4@host/db"),
        ],
        &[],
    )
    .unwrap();
    let shown = format!("{settings:?}");
    assert!(!shown.contains("CANARY"), "{shown}");
    assert_eq!(
        settings.amqp_url.unwrap().expose(),
        "amqp://user:CANARY1@host"
    );
}

#[test]
fn kinds_are_read_over_their_defaults() {
    let settings = load(
        "[defaults]\nmax_attempts = 5\nbackoff = { initial = \"2s\", max = \"1m\" }\n\
         [kinds.\"mail.send\"]\nqueue = \"mail\"\nregistered = true\nlease = \"2s\"\non_crash = \"hold\"\nschema = \"schema.json\"\npayload_max = \"1KiB\"\n\
         [kinds.echo]\ndeadline = \"5m\"\n",
        &[],
        &[],
    )
    .unwrap();
    let kind = |name: &str| settings.kinds.get(&name.parse().unwrap()).unwrap();
    let mail = kind("mail.send");
    assert_eq!((mail.max_attempts, mail.lease), (5, Duration::from_secs(2)));
    assert_eq!(mail.on_crash, fencepost_core::kind::OnCrash::Hold);
    assert_eq!(
        (mail.payload_bytes_max, mail.schema.is_some()),
        (1024, true)
    );
    assert_eq!(kind("echo").deadline, Duration::from_secs(300));
    assert_eq!(kind("document.extract").max_attempts, 5);
}

#[test]
fn a_table_changes_of_a_builtin_kind_only_what_it_says() {
    let settings = load(
        "[kinds.\"document.prepare\"]\nplanner = { openai = { base_url = \"http://127.0.0.1:11434/v1\", \
         model = \"m\", key_file = \"key\", timeout = \"9s\" } }\n\
         [kinds.\"document.extract\"]\nconcurrency = 2\n",
        &[],
        &[],
    )
    .unwrap();
    let kind = |name: &str| settings.kinds.get(&name.parse().unwrap()).unwrap();
    for (name, concurrency) in [("document.prepare", None), ("document.extract", Some(2))] {
        assert_eq!(kind(name).queue.as_str(), "documents");
        assert_eq!(kind(name).concurrency, concurrency);
    }
    let planner = kind("document.prepare").planner.as_ref().unwrap();
    assert_eq!(
        (
            planner.base_url.as_str(),
            planner.model.as_str(),
            planner.timeout
        ),
        ("http://127.0.0.1:11434/v1", "m", Duration::from_secs(9))
    );
    assert!(planner.key_file.as_ref().unwrap().ends_with("key"));
    assert_eq!(kind("document.extract").planner, None);
}

#[test]
fn a_bad_planner_says_what_is_wrong_with_it() {
    for (file, expected) in [
        (
            "[kinds.x]\nbuiltin = \"echo\"\nplanner = { openai = { base_url = \"http://h/v1\", model = \"m\" } }",
            "setting `kinds.\"x\".planner` (from the settings file): found `it`, expected it with `builtin = \"document.prepare\"` only",
        ),
        (
            "[kinds.\"document.prepare\"]\nplanner = { openai = { base_url = \"http://u:p@h/v1\", model = \"m\" } }",
            "an http or https URL without a user or password",
        ),
        (
            "[kinds.\"document.prepare\"]\nplanner = { openai = { base_url = \"http://h/v1\", model = \"\" } }",
            "the name of a model",
        ),
    ] {
        let error = load(file, &[], &[]).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn a_bad_kind_says_what_is_wrong_with_it() {
    for (file, expected) in [
        (
            "[kinds.x]\nqueue = \"q\"",
            "`builtin = \"…\"`, or `registered = true`",
        ),
        (
            "[kinds.x]\nbuiltin = \"ech\"",
            "setting `kinds.\"x\".builtin` (from the settings file): found `ech`, expected echo or document.extract or document.prepare",
        ),
        (
            "[kinds.x]\nregistered = true\nlease = \"10ms\"",
            "expected 500ms to 1h",
        ),
        (
            "[kinds.x]\nregistered = true\nmax_attempts = 0",
            "expected 1 to 100",
        ),
        (
            "[kinds.x]\nregistered = true\nschema = \"missing.json\"",
            "a readable file",
        ),
        (
            "[kinds.x]\ncommand = { program = [] }",
            "setting `kinds.\"x\".command.program` (from the settings file): found ``",
        ),
        (
            "[kinds.x]\ncommand = { program = [\"x\"], shell = true }",
            "unknown field `shell`",
        ),
        (
            "[kinds.x]\ncommand = { program = [\"x\"], exit = { other = \"maybe\" } }",
            "setting `kinds.x.command.exit.other` (from",
        ),
        (
            "[kinds.x]\ncommand = { program = [\"x\"], user = \"nobody\" }",
            "a user id and a group id",
        ),
        (
            "[kinds.x]\ncommand = { program = [\"x\"], env = { FENCEPOST_EPOCH = \"7\" } }",
            "does not begin with FENCEPOST_",
        ),
        (
            "[kinds.x]\ncommand = { program = [\"x\"], exit = { dead = [75] } }",
            "each code in one of",
        ),
        (
            "[kinds.x]\nsafe_to_repeat = true\ncommand = { program = [\"x\"], exit = { other = \"unknown\" } }",
            "retry or dead",
        ),
        (
            "[kinds.x]\nregistered = true\nsafe_to_repeat = true",
            "`command` or `http` only",
        ),
        (
            "[kinds.x]\nregistered = true\nconcurrency = 0",
            "to stop a kind, pause its queue",
        ),
        (
            "[kinds.x]\nregistered = true\nhttp = { url = \"http://a/\" }",
            "found `http and registered`, expected one of them",
        ),
        (
            "[kinds.x]\nhttp = { url = \"ftp://a/\" }",
            "an http or https URL",
        ),
        (
            "[kinds.x]\nhttp = { url = \"https://u:secret@a/\" }",
            "found `https://u:redacted@a/`",
        ),
        (
            "[kinds.x]\nhttp = { url = \"https://a/\", declined = [404] }",
            "statuses from 500 to 599",
        ),
        ("[kinds.\"a b\"]\nregistered = true", "1 to 100 letters"),
    ] {
        let text = error(file, &[], &[]);
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn commands_and_calls_are_settled_with_their_defaults() {
    let settings = load(
        "[kinds.a]\ncommand = { program = [\"./a.sh\", \"x\"], env = { TOKEN = \"CANARY\" } }\n\
         [kinds.b]\nsafe_to_repeat = true\nconcurrency = 2\ncommand = { program = [\"b\"], directory = \"sub\", user = \"1:2\", exit = { dead = [65] } }\n\
         [kinds.c]\nhttp = { url = \"https://c.example/hook\", secret_file = \"c.secret\", declined = [500] }\n",
        &[],
        &[],
    )
    .unwrap();
    assert!(!format!("{settings:?}").contains("CANARY"));
    let kind = |name: &str| settings.kinds.get(&name.parse().unwrap()).unwrap();
    let Runner::Command(a) = &kind("a").runner else {
        panic!()
    };
    assert!(a.directory.is_absolute());
    assert_eq!(
        (a.other, a.declined.contains(&75)),
        (OtherExit::Unknown, true)
    );
    let Runner::Command(b) = &kind("b").runner else {
        panic!()
    };
    assert!(b.directory.ends_with("sub"));
    assert_eq!((b.user, b.other), (Some((1, 2)), OtherExit::Retry));
    assert_eq!(
        (kind("b").concurrency, kind("b").safe_to_repeat),
        (Some(2), true)
    );
    let Runner::Http(c) = &kind("c").runner else {
        panic!()
    };
    assert_eq!(c.timeout, Duration::from_secs(30));
    assert!(c.secret_file.as_ref().unwrap().ends_with("c.secret"));
    assert!(c.declined.contains(&500));
}

#[test]
fn the_example_file_is_valid_and_changes_nothing() {
    let example = include_str!("../../../../fencepost.toml");
    let settings = load(example, &[], &[]).unwrap();
    let plain = Settings::load(Sources::default()).unwrap();
    assert_eq!(format!("{settings:?}"), format!("{plain:?}"));
}

#[test]
fn the_reference_page_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/settings.md");
    if process_environment("UPDATE_REFERENCE").is_some() {
        std::fs::write(&path, reference()).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == reference(),
        "run: UPDATE_REFERENCE=1 cargo test -p fencepost-service reference"
    );
}

#[test]
fn every_default_is_valid_and_every_key_is_used() {
    let shown = format!("{:?}", Settings::load(Sources::default()).unwrap());
    for definition in TABLE {
        let field = definition.key.rsplit('.').next().unwrap();
        assert!(
            shown.contains(field),
            "`{}` is in the table and nowhere else",
            definition.key
        );
    }
}
