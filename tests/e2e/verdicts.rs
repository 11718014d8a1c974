//! Unknown jobs, decided by a person on the command line.

use fencepost_testkit::wait::{eventually, require};
use fencepost_tests::{Client, PATIENCE, Process, Volume};
use serde_json::{Value, json};

use crate::workers::{ledger_worker, noted};

/// A job whose worker was killed inside its call, and a worker to go on.
async fn unknown(volume: &Volume, client: &Client, key: &str) -> String {
    let lost = ledger_worker(volume, "lost");
    let plan = json!({"steps": ["mail"], "stop_at": "mail called"});
    let before = calls(volume, "");
    let id = client.accepted(key, "ledger", plan).await;
    noted(volume, "mail called", before + 1).await;
    lost.kill_9();
    let job = client.at_rest(&id).await;
    assert_eq!(job["state"], "unknown");
    id
}

fn calls(volume: &Volume, id: &str) -> usize {
    let all = volume.ledger();
    let calls = all
        .iter()
        .filter(|line| line.starts_with(id) && line.ends_with("mail called"));
    calls.count()
}

fn run(volume: &Volume, up: &Process, arguments: &[&str]) -> (i32, String, String) {
    volume.run(&[&["--url", &up.url], arguments].concat())
}

fn done(volume: &Volume, up: &Process, arguments: &[&str]) -> String {
    let (code, out, err) = run(volume, up, arguments);
    assert_eq!(code, 0, "{arguments:?}: {out}{err}");
    out
}

#[tokio::test]
async fn a_person_decides_in_each_of_the_four_ways() {
    let volume = Volume::new();
    let up = volume.start("up");
    let client = Client::new(&up, &volume);
    let mut jobs = Vec::new();
    for key in ["happened", "not", "complete", "abandon"] {
        jobs.push(unknown(&volume, &client, key).await);
    }
    let [happened, not, complete, abandon] = &jobs[..] else {
        panic!()
    };
    let listed = done(&volume, &up, &["unknown"]);
    for id in &jobs {
        let line = listed.lines().find(|line| line.starts_with(id.as_str()));
        let line = line.unwrap_or_else(|| panic!("{id} in {listed}"));
        assert!(
            line.contains("ledger") && line.contains("mail") && line.contains("lost-"),
            "{line}"
        );
    }
    let one: Value = serde_json::from_str(
        done(&volume, &up, &["unknown", "--json"])
            .lines()
            .next()
            .unwrap(),
    )
    .unwrap();
    assert_eq!(one["effect"]["key"], format!("{happened}/mail"));

    let _worker = ledger_worker(&volume, "second");
    let why = ["--reason", "seen in the ledger"];
    let of = |id: &str, words: &[&str]| {
        done(&volume, &up, &[&["resolve", id], words, &why[..]].concat())
    };
    of(happened, &["--happened", "--outcome", "\"sent\""]);
    of(not, &["--did-not-happen"]);
    of(
        complete,
        &["--complete", "{\"receipt\":7}", "--evidence", "page 3"],
    );
    of(abandon, &["--abandon"]);

    let job = client.at_rest(happened).await;
    assert_eq!(
        (&job["state"], calls(&volume, happened)),
        (&json!("completed"), 1)
    );
    let job = client.at_rest(not).await;
    assert_eq!(
        (&job["state"], &job["epoch"]),
        (&json!("completed"), &json!(2))
    );
    assert_eq!(calls(&volume, not), 2);
    let job = client.at_rest(complete).await;
    assert_eq!(job["result"], json!({"receipt": 7}));
    let job = client.at_rest(abandon).await;
    assert_eq!(job["error"]["code"], "abandoned");
    for id in [complete, abandon] {
        assert_eq!(calls(&volume, id), 1);
    }

    let (code, _, err) = run(
        &volume,
        &up,
        &["resolve", complete, "--abandon", "--reason", "x"],
    );
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("state_conflict"), "{err}");
    assert_eq!(done(&volume, &up, &["unknown"]).lines().count(), 1);
    volume.verify();
}

#[tokio::test]
async fn all_that_fit_a_filter_are_decided_after_a_confirmation() {
    let volume = Volume::new();
    let up = volume.start("up");
    let client = Client::new(&up, &volume);
    let jobs = [
        unknown(&volume, &client, "1").await,
        unknown(&volume, &client, "2").await,
    ];
    let all = [
        "resolve",
        "--all",
        "--kind",
        "ledger",
        "--abandon",
        "--reason",
        "a mistake",
    ];
    // Nobody sits at this terminal.
    let (code, out, err) = run(&volume, &up, &all);
    assert_eq!(code, 2, "{out}{err}");
    assert!(
        out.contains(&jobs[0]) && err.contains("--yes"),
        "{out}{err}"
    );
    assert_eq!(client.at_rest(&jobs[0]).await["state"], "unknown");
    let other = done(
        &volume,
        &up,
        &[
            "resolve",
            "--all",
            "--kind",
            "echo",
            "--abandon",
            "--reason",
            "x",
            "--yes",
        ],
    );
    assert!(other.contains("nothing fits"), "{other}");
    let out = done(&volume, &up, &[&all[..], &["--yes"]].concat());
    for id in &jobs {
        assert!(out.contains(&format!("{id} is dead")), "{out}");
    }
    volume.verify();
}

/// What the outside system says is a file; a probe of each sort asks it.
const PROBED: &str = r#"
probe = { command = { program = ["sh", "-c", "cat answer-$FENCEPOST_EPOCH 2>/dev/null; cat >asked"] } }
"#;

#[tokio::test]
async fn a_probe_decides_by_hand_and_no_answer_changes_nothing() {
    let volume = Volume::new().with_settings(PROBED);
    let up = volume.start("up");
    let client = Client::new(&up, &volume);
    let id = unknown(&volume, &client, "k").await;
    let probe = ["resolve", id.as_str(), "--probe"];
    // It says nothing.
    let (code, out, err) = run(&volume, &up, &probe);
    assert_eq!(code, 1, "{out}{err}");
    assert!(out.contains("the probe's answer is not"), "{out}");
    let job = client.get(&format!("/jobs/{id}")).await;
    assert_eq!(job["state"], "unknown");
    let asked = std::fs::read_to_string(volume.path().join("asked")).unwrap();
    let asked: Value = serde_json::from_str(&asked).unwrap();
    assert_eq!(
        (&asked["key"], &asked["epoch"], &asked["kind"]),
        (&json!(format!("{id}/mail")), &json!(1), &json!("ledger"))
    );
    let answer = "{\"happened\": true, \"outcome\": \"R-17\"}";
    std::fs::write(volume.path().join("answer-1"), answer).unwrap();
    let out = done(&volume, &up, &probe);
    assert!(out.contains("happened; the job is queued"), "{out}");
    let _worker = ledger_worker(&volume, "second");
    assert_eq!(client.at_rest(&id).await["state"], "completed");
    assert_eq!(calls(&volume, &id), 1);
    let events = client.get(&format!("/jobs/{id}/events")).await;
    let events = events["items"].as_array().unwrap();
    let verdict = events.iter().find(|event| event["type"] == "verdict");
    assert_eq!(verdict.unwrap()["actor"], "probe by default");
    let (code, _, _) = run(&volume, &up, &probe);
    assert_eq!(code, 1, "nothing is unknown any more");
    volume.verify();
}

#[tokio::test]
async fn a_probe_decides_by_itself_at_its_own_pace() {
    let probed = PROBED.replace("} }", "}, every = \"300ms\" }");
    let volume = Volume::new().with_settings(&probed);
    let up = volume.start("up");
    let client = Client::new(&up, &volume);
    let id = unknown(&volume, &client, "k").await;
    eventually(PATIENCE, "the probe to have asked", || async {
        let asked = volume.path().join("asked").exists();
        require(asked, "nobody asked")
    })
    .await;
    let job = client.get(&format!("/jobs/{id}")).await;
    assert_eq!(job["state"], "unknown");
    std::fs::write(volume.path().join("answer-1"), "{\"happened\": false}").unwrap();
    let _worker = ledger_worker(&volume, "second");
    let job = eventually(PATIENCE, "the job goes on", || async {
        let job = client.get(&format!("/jobs/{id}")).await;
        require(job["state"] == "completed", job.to_string())?;
        Ok::<_, String>(job)
    })
    .await;
    // It had not happened: the next claim made it.
    assert_eq!((&job["epoch"], calls(&volume, &id)), (&json!(2), 2));
    volume.verify();
}
