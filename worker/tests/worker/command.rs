//! Commands: what they are given, what their ends mean, and that none outlives its claim.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use fencepost_core::kind::{Command, EXIT_DECLINED, OtherExit};
use fencepost_core::lifecycle::{Cancel, State};
use fencepost_testkit::wait::{eventually, require};
use fencepost_worker::command::CommandHandler;

use crate::setup::{KIND, LONG, PATIENCE, Running, SHORT, World, kind, submission};

/// The example is built with the tests, beside them.
fn guard() -> (PathBuf, Vec<String>) {
    let own = std::env::current_exe().unwrap();
    let built = own.ancestors().nth(2).unwrap();
    (built.join("examples/command-guard"), Vec::new())
}

/// A shell script as a command.
fn script(text: &str) -> Command {
    Command {
        program: ["sh", "-c", text].map(str::to_owned).to_vec(),
        directory: PathBuf::from("/"),
        user: None,
        env: BTreeMap::new(),
        inherit_env: Vec::new(),
        stop_grace: Duration::from_secs(60),
        declined: BTreeSet::from([EXIT_DECLINED]),
        dead: BTreeSet::from([65]),
        other: OtherExit::Unknown,
    }
}

fn effect(command: Command) -> CommandHandler {
    CommandHandler::new(guard(), command, false, BTreeMap::new())
}

fn repeatable(text: &str) -> CommandHandler {
    let command = Command {
        other: OtherExit::Retry,
        ..script(text)
    };
    CommandHandler::new(guard(), command, true, BTreeMap::new())
}

impl World {
    fn run_command(&self, lease: Duration, handler: CommandHandler) -> Running {
        self.start(self.builder(lease).handler(kind(KIND), handler))
    }

    /// Runs one job with a command to its rest.
    async fn ends(&self, handler: CommandHandler, payload: &str, state: State) -> Ended {
        let worker = self.run_command(LONG, handler);
        let job = self.submit(submission("k", payload)).await;
        let job = self.reaches(job, state).await;
        worker.stop().await;
        self.verify().await;
        let events = self.events(job.id).await;
        Ended {
            code: job.error.as_ref().map(|error| error.code.to_string()),
            message: job.error.map(|error| error.message).unwrap_or_default(),
            result: job.result,
            attempts: job.attempts,
            events,
        }
    }
}

struct Ended {
    code: Option<String>,
    message: String,
    result: Option<String>,
    attempts: u32,
    events: Vec<String>,
}

/// A file whose lines are what scripts say, and a way to wait for them.
struct Notes {
    _directory: tempfile::TempDir,
    path: PathBuf,
}

impl Notes {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notes");
        std::fs::write(&path, "").unwrap();
        Self {
            _directory: directory,
            path,
        }
    }

    fn lines(&self) -> Vec<String> {
        let text = std::fs::read_to_string(&self.path).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    async fn has(&self, count: usize) -> Vec<String> {
        eventually(PATIENCE, "notes of a command", async || {
            let lines = self.lines();
            require(lines.len() >= count, format!("{lines:?}"))?;
            Ok::<_, String>(lines)
        })
        .await
    }

    /// Waits until none of the noted processes is left.
    async fn are_gone(&self) {
        let pids = self.lines();
        eventually(PATIENCE, "the end of every noted process", async || {
            let left: Vec<&String> = pids.iter().filter(|pid| is_alive(pid)).collect();
            require(left.is_empty(), format!("{left:?}"))
        })
        .await;
    }
}

/// Whether a process runs; one that only waits to be reaped does not.
fn is_alive(pid: &str) -> bool {
    let stat = std::fs::read_to_string(Path::new("/proc").join(pid).join("stat"));
    stat.is_ok_and(|stat| {
        let after_name = stat.rsplit(')').next().unwrap_or_default().trim_start();
        !after_name.starts_with('Z')
    })
}

#[tokio::test]
async fn a_command_reads_the_payload_and_its_output_is_the_result() {
    let world = World::new().await;
    let payload = "{\"n\": 12345678901234567890.10}";
    let ended = world
        .ends(repeatable("cat"), payload, State::Completed)
        .await;
    assert_eq!(ended.result.as_deref(), Some(payload));
    assert!(!ended.events.contains(&"effect_opened".to_owned()));
}

#[tokio::test]
async fn a_command_that_may_not_be_repeated_is_an_effect() {
    let world = World::new().await;
    let ended = world
        .ends(effect(script("echo sent")), "{}", State::Completed)
        .await;
    assert_eq!(ended.result.as_deref(), Some("\"sent\""));
    let marks = ended
        .events
        .iter()
        .filter(|event| event.starts_with("effect"));
    assert_eq!(
        marks.collect::<Vec<_>>(),
        ["effect_opened", "effect_settled"]
    );
}

#[tokio::test]
async fn a_command_knows_its_job_and_nothing_of_the_workers_environment() {
    let world = World::new().await;
    let command = Command {
        env: BTreeMap::from([("GREETING".to_owned(), "hello".to_owned())]),
        directory: PathBuf::from("/usr"),
        ..script(
            "env | cut -d= -f1 | sort | tr '\\n' ' '; echo $GREETING $FENCEPOST_EPOCH $FENCEPOST_ATTEMPT $FENCEPOST_KEY; pwd",
        )
    };
    let worker = world.run_command(LONG, effect(command));
    let job = world.queued("k").await;
    let done = world.reaches(job, State::Completed).await;
    worker.stop().await;
    let text: String = serde_json::from_str(&done.result.unwrap()).unwrap();
    assert_eq!(
        text,
        format!(
            "FENCEPOST_ATTEMPT FENCEPOST_DEADLINE FENCEPOST_EPOCH FENCEPOST_JOB_ID FENCEPOST_KEY \
             FENCEPOST_KIND GREETING PATH PWD hello 1 1 {job}/command\n/usr"
        )
    );
}

#[tokio::test]
async fn exit_codes_mean_what_the_kind_says() {
    for (text, state, code, attempts) in [
        ("exit 75", State::Dead, "command_declined", 3),
        ("exit 65", State::Dead, "command_refused", 1),
        ("exit 3", State::Unknown, "effect_open", 1),
        ("kill -9 $$", State::Unknown, "effect_open", 1),
    ] {
        let world = World::new().await;
        let ended = world.ends(effect(script(text)), "{}", state).await;
        assert_eq!(
            (ended.code.as_deref(), ended.attempts),
            (Some(code), attempts),
            "{text}"
        );
    }
    for (text, code, attempts) in [
        ("exit 3", "command_failed", 3),
        ("kill -9 $$", "command_killed", 3),
        ("exit 65", "command_refused", 1),
    ] {
        let world = World::new().await;
        let ended = world.ends(repeatable(text), "{}", State::Dead).await;
        assert_eq!(
            (ended.code.as_deref(), ended.attempts),
            (Some(code), attempts),
            "{text}"
        );
    }
}

#[tokio::test]
async fn a_command_that_declined_is_run_again_under_a_new_epoch() {
    let world = World::new().await;
    let text = "test $FENCEPOST_EPOCH = 2 && echo '\"twice\"' || exit 75";
    let ended = world
        .ends(effect(script(text)), "{}", State::Completed)
        .await;
    assert_eq!(ended.result.as_deref(), Some("\"twice\""));
    assert_eq!(ended.attempts, 2);
}

#[tokio::test]
async fn a_program_that_is_not_there_did_nothing() {
    let world = World::new().await;
    let command = Command {
        program: vec!["./not-there".to_owned()],
        ..script("")
    };
    let ended = world.ends(effect(command), "{}", State::Dead).await;
    assert_eq!(ended.code.as_deref(), Some("command_not_started"));
    assert!(ended.message.contains("No such file"), "{}", ended.message);
}

#[tokio::test]
async fn the_tail_of_standard_error_is_kept_without_the_values_of_variables() {
    let world = World::new().await;
    let command = Command {
        env: BTreeMap::from([("TOKEN".to_owned(), "hunter22".to_owned())]),
        ..script("yes noise | head -c 1000000 >&2; printf 'at\\000last %s' $TOKEN >&2; exit 65")
    };
    let ended = world.ends(effect(command), "{}", State::Dead).await;
    assert!(
        ended.message.ends_with("at\u{fffd}last redacted"),
        "{}",
        ended.message
    );
    assert!(ended.message.len() < 2_000);
}

#[tokio::test]
async fn an_output_that_cannot_be_kept_ends_the_job_after_the_effect() {
    for text in [
        "head -c 2000000 /dev/zero | tr '\\0' x",
        "printf '\\377'",
        "printf '{\"a\":1,\"a\":2}'",
        "printf '\"\\\\u0000\"'",
    ] {
        let world = World::new().await;
        let ended = world.ends(effect(script(text)), "{}", State::Dead).await;
        assert_eq!(ended.code.as_deref(), Some("invalid_result"), "{text}");
        assert!(ended.events.contains(&"effect_settled".to_owned()));
    }
}

/// More than a pipe holds, both ways, and a command that reads none of it.
#[tokio::test]
async fn full_pipes_stop_nobody() {
    let world = World::new().await;
    let payload = format!("\"{}\"", "x".repeat(65_000));
    let text = "yes | head -c 300000 >&2; head -c 200000 /dev/zero | tr '\\0' 1";
    let ended = world
        .ends(repeatable(text), &payload, State::Completed)
        .await;
    assert_eq!(ended.result.map(|text| text.len()), Some(200_000));
}

#[tokio::test]
async fn what_a_command_leaves_behind_ends_with_it() {
    let world = World::new().await;
    let notes = Notes::new();
    // One in its group, one that left it, both holding its output open.
    let text = format!(
        "sleep 600 & echo $! >>{0}; setsid sh -c 'echo $$ >>{0}; exec sleep 600' & \
         while [ $(wc -l <{0}) -lt 2 ]; do :; done; echo 1",
        notes.path.display()
    );
    let ended = world
        .ends(effect(script(&text)), "{}", State::Completed)
        .await;
    assert_eq!(ended.result.as_deref(), Some("1"));
    notes.are_gone().await;
    assert_eq!(notes.lines().len(), 2);
}

/// The worker crashes: nothing but the end of the pipe tells the guard.
#[tokio::test]
async fn a_crashed_workers_command_is_killed_before_its_lease_ends() {
    let world = World::new().await;
    let notes = Notes::new();
    let text = format!("echo $$ >>{}; exec sleep 600", notes.path.display());
    let worker = world.run_command(LONG, effect(script(&text)));
    world.queued("k").await;
    notes.has(1).await;
    worker.crash().await;
    notes.are_gone().await;
}

/// The database is another's for longer than the lease: no renewal arrives.
#[tokio::test]
async fn a_command_is_killed_when_its_lease_ends() {
    let world = World::new().await;
    let notes = Notes::new();
    let text = format!(
        "trap '' TERM; echo $$ >>{}; while :; do sleep 1; done",
        notes.path.display()
    );
    let worker = world.run_command(SHORT, repeatable(&text));
    let job = world.queued("k").await;
    notes.has(1).await;
    let lock = world.hold_database();
    notes.are_gone().await;
    drop(lock);
    assert_eq!(world.reap(job).await, State::Queued);
    worker.crash().await;
    world.verify().await;
}

#[tokio::test]
async fn a_command_outlives_many_leases_while_they_are_renewed() {
    let world = World::new().await;
    let handler = repeatable("sleep 3; echo 1"); // deliberate: three leases long
    let worker = world.run_command(SHORT, handler);
    let job = world.queued("k").await;
    let done = world.reaches(job, State::Completed).await;
    assert_eq!((done.attempts, done.result.as_deref()), (1, Some("1")));
    worker.stop().await;
}

#[tokio::test]
async fn a_cancelled_command_is_asked_to_end() {
    let world = World::new().await;
    let notes = Notes::new();
    let text = format!(
        "trap 'exit 75' TERM; echo $$ >>{}; sleep 600 & wait",
        notes.path.display()
    );
    let worker = world.run_command(SHORT, effect(script(&text)));
    let job = world.queued("k").await;
    notes.has(1).await;
    world.cancel(job, Cancel::Ask).await;
    // It says that it did nothing: a plain cancellation.
    let job = world.reaches(job, State::Cancelled).await;
    assert_eq!(job.error.unwrap().code.as_str(), "cancelled");
    worker.stop().await;
    world.verify().await;
}

#[tokio::test]
async fn a_cancelled_command_that_does_not_listen_is_killed() {
    let world = World::new().await;
    let notes = Notes::new();
    let command = Command {
        stop_grace: Duration::from_millis(100),
        ..script(&format!(
            "trap '' TERM; echo $$ >>{}; while :; do sleep 1; done",
            notes.path.display()
        ))
    };
    let worker = world.run_command(SHORT, effect(command));
    let job = world.queued("k").await;
    notes.has(1).await;
    world.cancel(job, Cancel::Ask).await;
    // Whether it did something, nobody knows.
    world.reaches(job, State::Unknown).await;
    notes.are_gone().await;
    worker.stop().await;
}

#[tokio::test]
async fn a_worker_that_ends_kills_its_command_and_gives_a_repeatable_job_back() {
    for (handler, state) in [
        (repeatable as fn(&str) -> CommandHandler, State::Queued),
        (|text: &str| effect(script(text)), State::Unknown),
    ] {
        let world = World::new().await;
        let notes = Notes::new();
        let text = format!("echo $$ >>{}; exec sleep 600", notes.path.display());
        let worker = world.run_command(LONG, handler(&text));
        let job = world.queued("k").await;
        notes.has(1).await;
        worker.stop().await;
        notes.are_gone().await;
        let job = world.job(job).await;
        assert_eq!(job.state, state);
        if state == State::Queued {
            assert_eq!(job.attempts, 0);
        }
        world.verify().await;
    }
}

/// Killed by hand, say, or by a kernel that is out of memory.
#[tokio::test]
async fn a_command_whose_guard_is_killed_is_ended_by_the_worker() {
    let world = World::new().await;
    let notes = Notes::new();
    let text = format!("echo $PPID $$ >>{}; exec sleep 600", notes.path.display());
    let worker = world.run_command(LONG, effect(script(&text)));
    let job = world.queued("k").await;
    let line = notes.has(1).await.remove(0);
    let (guard, command) = line.split_once(' ').unwrap();
    let pid = rustix::process::Pid::from_raw(guard.parse().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    // What it did, nobody knows.
    world.reaches(job, State::Unknown).await;
    eventually(PATIENCE, "the end of the command", async || {
        require(!is_alive(command), command.to_owned())
    })
    .await;
    worker.stop().await;
    world.verify().await;
}

/// As root any user will do; without privileges, one's own.
#[tokio::test]
async fn a_command_runs_as_the_user_that_its_kind_names() {
    let own = rustix::process::getuid();
    let user = if own.is_root() { 65_534 } else { own.as_raw() };
    let group = if own.is_root() {
        65_533
    } else {
        rustix::process::getgid().as_raw()
    };
    let world = World::new().await;
    let command = Command {
        user: Some((user, group)),
        ..script("id -u; id -g; id -G")
    };
    let ended = world.ends(effect(command), "{}", State::Completed).await;
    let text: String = serde_json::from_str(&ended.result.unwrap()).unwrap();
    assert!(text.starts_with(&format!("{user}\n{group}\n")), "{text}");
    if own.is_root() {
        // The groups of the worker are not among its own.
        assert_eq!(text, format!("{user}\n{group}\n{group}"));
    }
}
