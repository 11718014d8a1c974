//! `cargo xtask services`, as a process.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use fencepost_testkit::broker::{ADMIN_URL_VARIABLE, AMQP_URL_VARIABLE, Admin};
use fencepost_testkit::wait::eventually;
use rustix::process::{Pid, Signal, kill_process};

const LIMIT: Duration = Duration::from_secs(30);

#[tokio::test]
async fn services_start_a_node_that_ends_with_them() {
    let mut services = Command::new(env!("CARGO_BIN_EXE_xtask"))
        .arg("services")
        .env_remove(AMQP_URL_VARIABLE)
        .env_remove(ADMIN_URL_VARIABLE)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(services.stdout.take().unwrap());
    let lines: Vec<String> = output.lines().take(3).map(Result::unwrap).collect();
    let names: Vec<&str> = lines
        .iter()
        .filter_map(|line| line.strip_prefix("export ")?.split_once('='))
        .map(|(name, _)| name)
        .collect();
    assert_eq!(
        names,
        ["FENCEPOST_AMQP_URL", AMQP_URL_VARIABLE, ADMIN_URL_VARIABLE]
    );
    let (_, admin_url) = lines[2].split_once('=').unwrap();
    let admin = Admin::new(admin_url, "/").unwrap();
    admin.connections().await.unwrap();

    kill_process(Pid::from_child(&services), Signal::INT).unwrap();
    let status = eventually(LIMIT, "the task ends", async || {
        let ended = services.try_wait().unwrap();
        ended.ok_or("it runs")
    });
    assert!(status.await.success());
    assert!(admin.connections().await.is_err(), "the node lives on");
}
