//! Secrets stay where they belong: in no log, no answer that is not their own, no
//! message, no error text.

use fencepost_testkit::broker::SharedBroker;
use fencepost_testkit::wait::{eventually, require};
use fencepost_tests::{Client, PATIENCE, Process, Volume};
use serde_json::{Value, json};

const PASSWORD: &str = "canary-one";
const NOTE: &str = "canary-two";
const TOKEN: &str = "canary-three";
const BROKER: &str = "canary-five";
const OPERATION: &str = "canary-seven";
const RESULT: &str = "canary-eight";

/// Kinds whose commands succeed, fail with a secret in their words, refuse, and crash.
const KINDS: &str = r#"
[kinds.good]
command = { program = ["sh", "-c", "cat >/dev/null; echo '\"canary-eight\"'"] }
[kinds.bad]
safe_to_repeat = true
command = { program = ["sh", "-c", "echo \"GET http://u:canary-three@host/x?token=canary-three failed\" >&2; exit 3"] }
[kinds.refuses]
command = { program = ["sh", "-c", "echo $SECRET >&2; exit 65"], exit = { dead = [65] }, env = { SECRET = "canary-three" } }
[kinds.reads]
builtin = "document.prepare"
[kinds.plans]
builtin = "document.prepare"
max_attempts = 1
planner = { openai = { base_url = "http://127.0.0.1:1/v1", model = "m", key_file = "key" } }
[kinds.calls]
http = { url = "http://127.0.0.1:1/?token=canary-three" }
"#;

fn secrets(key: &str) -> [&str; 5] {
    [PASSWORD, NOTE, TOKEN, BROKER, key]
}

fn assert_clean(what: &str, text: &str, secrets: &[&str]) {
    for secret in secrets {
        if let Some(line) = text.lines().find(|line| line.contains(secret)) {
            panic!("{secret} in {what}: {line}");
        }
    }
}

fn payload() -> Value {
    json!({"password": PASSWORD, "note": NOTE})
}

#[tokio::test]
async fn no_secret_is_logged_or_shown_to_whom_it_does_not_belong() {
    let broker = SharedBroker::new().await;
    let mut volume = Volume::new()
        .with_settings(KINDS)
        .with_broker(broker.amqp_url());
    for (name, value) in [("FENCEPOST_LOG", "trace"), ("RUST_BACKTRACE", "1")] {
        volume.environment.push((name.to_owned(), value.to_owned()));
    }
    std::fs::write(volume.path().join("key"), TOKEN).unwrap();
    let key = volume.key();
    let processes: Vec<Process> = ["api", "relay", "worker"]
        .iter()
        .map(|verb| volume.start(verb))
        .collect();
    let client = Client::new(&processes[0], &volume);
    let mut ids = Vec::new();
    for kind in ["good", "bad", "refuses", "calls"] {
        let operation = format!("{OPERATION}-{kind}");
        let id = client.accepted(&operation, kind, payload()).await;
        let job = client.at_rest(&id).await;
        let done = if kind == "good" { "completed" } else { "dead" };
        assert_eq!(job["state"], done, "{job}");
        assert_clean("a job", &job.to_string(), &secrets(&key));
        assert_eq!(job.to_string().contains(RESULT), kind == "good");
        ids.push(id);
    }
    let document =
        json!({"text": format!("{PASSWORD}\nInvoice number: {NOTE}\n"), "required": ["bic"]});
    for (kind, state) in [("reads", "completed"), ("plans", "dead")] {
        let operation = format!("{OPERATION}-{kind}");
        let id = client.accepted(&operation, kind, document.clone()).await;
        let job = client.at_rest(&id).await;
        assert_eq!(job["state"], state, "{job}");
        // What was found belongs to the job's owner.
        assert_clean("a document's job", &job.to_string(), &[PASSWORD, TOKEN]);
        ids.push(id);
    }
    let cancelled = json!({"password": PASSWORD, "note": NOTE});
    let id = client
        .accepted(&format!("{OPERATION}-x"), "ledger", cancelled)
        .await;
    let (status, refused) = client
        .submit("bad key \u{e9}", "good", payload())
        .await
        .unwrap();
    assert_eq!(status, 400, "{refused}");
    assert_clean("a refusal", &refused.to_string(), &secrets(&key));
    let list = client.get("/jobs").await.to_string();
    assert_clean("the list", &list, &[&secrets(&key)[..], &[RESULT]].concat());
    for id in ids.iter().chain([&id]) {
        let events = client.get(&format!("/jobs/{id}/events")).await.to_string();
        assert_clean(
            "a history",
            &events,
            &[&secrets(&key)[..], &[RESULT, OPERATION]].concat(),
        );
    }
    // A message that nobody can read, with secrets in it.
    let unreadable = format!("{{\"note\":\"{NOTE}\"");
    assert!(
        broker
            .admin()
            .publish("fencepost.jobs", "default", &unreadable)
            .await
            .unwrap()
    );
    eventually(
        PATIENCE,
        "the message in the dead-letter queue",
        async || {
            let dead = broker.admin().queue("fencepost.dead").await.ok().flatten();
            let ready = dead.map_or(0, |queue| queue.ready);
            require(ready == 1, ready)
        },
    )
    .await;
    let logs: Vec<String> = processes.iter().map(Process::log).collect();
    let verbose = logs.iter().filter(|log| log.contains("TRACE")).count();
    assert!(verbose > 0, "nothing was logged at the most verbose level");
    for (process, log) in processes.into_iter().zip(&logs) {
        assert_clean(
            "a log",
            log,
            &[&secrets(&key)[..], &[RESULT, OPERATION]].concat(),
        );
        assert_eq!(process.terminate().0, 0);
    }
    for (_, text) in std::fs::read_dir(volume.path())
        .unwrap()
        .flatten()
        .filter(|entry| entry.path().extension().is_some_and(|end| end == "log"))
        .map(|entry| (entry.path(), std::fs::read_to_string(entry.path()).unwrap()))
    {
        assert_clean(
            "a log",
            &text,
            &[&secrets(&key)[..], &[RESULT, OPERATION]].concat(),
        );
    }
    volume.verify();
}

#[tokio::test]
async fn a_broker_that_refuses_the_password_and_a_bad_setting_do_not_show_it() {
    let mut volume = Volume::new().with_broker(&format!("amqp://guest:{BROKER}@127.0.0.1:1/%2f"));
    volume
        .environment
        .push(("FENCEPOST_LOG".to_owned(), "trace".to_owned()));
    for verb in ["relay", "worker"] {
        let process = volume.start(verb);
        eventually(PATIENCE, "a line about the broker", async || {
            let log = process.log();
            require(log.contains("broker"), log)
        })
        .await;
        assert_clean("a log", &process.log(), &[BROKER]);
        drop(process);
    }
    volume.environment.clear();
    for (name, value) in [
        ("FENCEPOST_AMQP_URL", format!("http://guest:{BROKER}@host")),
        (
            "FENCEPOST_DATABASE_URL",
            format!("mysql://u:{BROKER}@host/x?password={BROKER}"),
        ),
        ("FENCEPOST_API_KEY", format!("fp_{BROKER}")),
        ("FENCEPOST_LOG_FORMAT", "xml".to_owned()),
    ] {
        volume.environment = vec![(name.to_owned(), value)];
        for verb in ["worker", "api", "list"] {
            if verb != "list" && name == "FENCEPOST_API_KEY" {
                continue;
            }
            if verb == "api" && name == "FENCEPOST_AMQP_URL" {
                continue;
            }
            let (code, out, err) = volume.run(&[verb]);
            assert_ne!(code, 0, "{name} {verb}: {out}{err}");
            assert_clean(name, &format!("{out}{err}"), &[BROKER]);
        }
    }
}
