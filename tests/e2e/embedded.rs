//! One process, one file.

use std::collections::BTreeSet;
use std::time::Duration;

use fencepost_tests::{Client, Volume};
use serde_json::json;

#[tokio::test]
async fn a_job_posted_to_up_completes_and_the_rules_hold() {
    let volume = Volume::new();
    let up = volume.start("up");
    let client = Client::new(&up, &volume);
    let id = client
        .accepted("k", "echo", json!({"hello": "world"}))
        .await;
    let job = client.at_rest(&id).await;
    assert_eq!(
        (&job["state"], &job["result"]),
        (&json!("completed"), &json!({"hello": "world"}))
    );
    assert_eq!(
        client.events(&id).await,
        ["accepted", "claimed", "completed"]
    );
    volume.verify();
    let (code, took) = up.terminate();
    assert_eq!(code, 0);
    assert!(took < Duration::from_secs(5), "{took:?}");
}

#[tokio::test]
async fn a_document_is_read_through_the_command_line() {
    let volume = Volume::new();
    let up = volume.start("up");
    let file = volume.path().join("note.txt");
    std::fs::write(&file, "Größe: 5 €\r\nsecond line\n").unwrap();
    let file = file.display().to_string();
    let run = |arguments: &[&str]| {
        let url = ["--url", &up.url];
        volume.run(&[&url, arguments].concat())
    };
    let (code, out, err) = run(&["submit", "document.extract", "--file", &file, "--wait"]);
    assert_eq!(
        (code, out.as_str()),
        (0, "Größe: 5 €\nsecond line\n\n"),
        "{err}"
    );
    let (code, _, err) = run(&["submit", "document.extract", "{}", "--wait"]);
    assert_eq!(code, 1);
    assert!(err.contains("invalid_payload"), "{err}");
    let fields = "{\"required\":[\"iban\",\"date\"],\"locale\":\"de-DE\"}";
    let (code, out, err) = run(&[
        "submit",
        "document.prepare",
        fields,
        "--file",
        &file,
        "--wait",
    ]);
    let note = "Review of a supplier's document\n\nNot found:\n- invoice date\n- IBAN\n\n\
                Questions to the supplier:\n- What is the invoice date of this document?\n\
                - What is the IBAN of this document?\n\n";
    assert_eq!((code, out.as_str()), (0, note), "{err}");
    let (code, out, _) = run(&["list", "--json"]);
    assert_eq!((code, out.lines().count()), (0, 3));
    let (code, _, err) = run(&["get", "018f0d5e-7a31-7c3a-9a39-0242ac120002"]);
    assert_eq!(
        (code, err.trim()),
        (1, "fencepost: not_found: no such job or path")
    );
}

#[test]
fn a_bad_setting_is_one_line_and_exit_code_78() {
    let mut volume = Volume::new();
    volume
        .environment
        .push(("FENCEPOST_RELAY_POLL".to_owned(), "soon".to_owned()));
    let (code, out, err) = volume.run(&["up"]);
    assert_eq!((code, out.as_str(), err.lines().count()), (78, "", 1));
    assert!(err.contains("setting `relay.poll`"), "{err}");
    volume.environment.clear();
    for (arguments, code, text) in [
        (&["up", "--listen", "nowhere"][..], 78, "setting `listen`"),
        (&["relay"], 78, "setting `amqp_url`"),
        (
            &["up", "--database-url", "mysql:x"],
            78,
            "setting `database_url`",
        ),
        (&["list", "--url", "http://127.0.0.1:9"], 77, "no API key"),
        (&["fly"], 2, "unrecognized subcommand"),
        (&["verify"], 69, "there is no database"),
    ] {
        let (found, _, err) = volume.run(arguments);
        assert_eq!(found, code, "{arguments:?}: {err}");
        assert!(err.contains(text), "{arguments:?}: {err}");
    }
}

/// Every 202 ever answered is a job in the store, whenever the API is killed.
#[tokio::test]
async fn a_killed_api_loses_nothing_it_accepted() {
    let volume = Volume::new();
    let mut accepted = BTreeSet::new();
    for round in 0..4 {
        let api = volume.start("api");
        let client = Client::new(&api, &volume);
        let mut posting = tokio::task::JoinSet::new();
        for poster in 0..8 {
            let client = client.clone();
            posting.spawn(async move {
                let mut ids = Vec::new();
                for n in 0.. {
                    let key = format!("{round}-{poster}-{n}");
                    match client.submit(&key, "echo", json!({"n": n})).await {
                        Ok((202, body)) => ids.push(body["id"].as_str().unwrap().to_owned()),
                        Ok((status, body)) => panic!("{status}: {body}"),
                        // Killed: nothing was promised.
                        Err(_) => break,
                    }
                }
                ids
            });
        }
        tokio::time::sleep(Duration::from_millis(150 + 130 * round)).await; // deliberate: a moment under load
        api.kill_9();
        while let Some(ids) = posting.join_next().await {
            accepted.extend(ids.unwrap());
        }
    }
    assert!(accepted.len() > 100, "{} accepted", accepted.len());
    let up = volume.start("up");
    let client = Client::new(&up, &volume);
    for id in &accepted {
        assert_eq!(client.at_rest(id).await["state"], "completed");
    }
    volume.verify();
}

/// The same key at the same moment, over two processes on one file.
#[tokio::test]
async fn fifty_requests_with_one_key_over_two_processes_make_one_job() {
    let volume = Volume::new();
    let (one, two) = (volume.start("api"), volume.start("api"));
    let clients = [Client::new(&one, &volume), Client::new(&two, &volume)];
    for round in 0..5 {
        let key = format!("k{round}");
        let posts = (0..50).map(|n| clients[n % 2].submit(&key, "echo", json!({"same": true})));
        let mut ids = BTreeSet::new();
        for answer in futures_util::future::join_all(posts).await {
            let (status, body) = answer.unwrap();
            assert_eq!(status, 202, "{body}");
            ids.insert(body["id"].as_str().unwrap().to_owned());
        }
        assert_eq!(ids.len(), 1);
    }
    let list = clients[0].get("/jobs?limit=100").await;
    assert_eq!(list["items"].as_array().unwrap().len(), 5);
    volume.verify();
}
