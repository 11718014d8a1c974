//! The guard's side: run the command, and let nothing of it outlive the claim.
//!
//! ```text
//!   worker ── start, renewals ──► guard ── payload ──► command, in a process group
//!          ◄── how it ended ────        ◄─ output ──   of its own
//! ```
//!
//! The guard is a process of its own, so that a worker that is killed or frozen
//! cannot leave its command at work: when the pipe from the worker ends, or the
//! claim does, the whole group is killed. What leaves the group is found too:
//! the guard adopts every descendant that loses its parent, and ends those
//! that are left when the command has ended.

use std::fs;
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{
    Pid, Signal, WaitOptions, kill_process, kill_process_group, set_child_subreaper, waitpid,
};

use super::wire::{End, How, MonotonicNanos, Order, Report, Start};
use crate::call::Output;

/// The longest first line: a payload with every character escaped, and the rest.
const START_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// What is kept of the command's standard error, from its end.
const ERRORS_BYTES_MAX: usize = 1_536;

/// Events on their way to the loop; each thread sends a few.
const EVENTS: usize = 16;

/// How long pipes may stay open once everything that was found has ended.
const DRAIN_LIMIT: Duration = Duration::from_secs(1);

/// How often what the command left behind is looked for: each round ends a generation of it.
const SWEEPS_MAX: u32 = 100;

/// Standard output and standard error.
const OUTPUTS: usize = 2;

enum Event {
    Order(Order),
    /// The worker is gone.
    PipeEnded,
    Exited(std::io::Result<ExitStatus>),
    /// One of the two outputs has ended.
    Drained,
}

/// Runs the guard; what it is to run comes on standard input.
pub fn run() -> ExitCode {
    let mut orders = BufReader::new(std::io::stdin());
    let mut first = String::new();
    let read = orders.by_ref().take(START_BYTES_MAX).read_line(&mut first);
    let start = read
        .ok()
        .and_then(|_| serde_json::from_str::<Start>(&first).ok());
    let Some(start) = start else {
        return ExitCode::from(64);
    };
    // Before the first child, so that none is missed.
    if set_child_subreaper(Some(rustix::process::getpid())).is_err() {
        return ExitCode::from(71);
    }
    let end = match spawn(&start) {
        Ok(child) => guard(child, start, orders),
        Err(error) => End {
            how: How::NotStarted(error.to_string()),
            output: Output::Text(String::new()),
            errors: String::new(),
        },
    };
    if say(&Report::Ended(end)) {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(74)
    }
}

/// Whether the worker was told.
fn say(report: &Report) -> bool {
    let Ok(line) = serde_json::to_string(report) else {
        return false;
    };
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).is_ok()
}

fn spawn(start: &Start) -> std::io::Result<Child> {
    let mut command = Command::new(&start.program);
    command
        .args(&start.arguments)
        .env_clear()
        .envs(start.env.iter().map(|(name, value)| (name, value)))
        .current_dir(&start.directory)
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if let Some((user, group)) = start.user {
        command.uid(user).gid(group);
    }
    command.spawn()
}

/// What a thread has read so far.
type Kept = Arc<Mutex<Vec<u8>>>;

fn kept(bytes: &Kept) -> Vec<u8> {
    std::mem::take(&mut *bytes.lock().unwrap_or_else(PoisonError::into_inner))
}

fn guard(mut child: Child, start: Start, orders: BufReader<std::io::Stdin>) -> End {
    let (events, received) = sync_channel(EVENTS);
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let (output, errors) = (Kept::default(), Kept::default());
    pump(
        &mut child,
        start.input,
        start.output_max,
        [&output, &errors],
        &events,
    );
    say(&Report::Started(group.map_or(0, Pid::as_raw_pid)));
    let to_loop = events.clone();
    std::thread::spawn(move || listen(orders, &to_loop));
    // The one that waits for the command: nothing else reaps it.
    std::thread::spawn(move || drop(events.send(Event::Exited(child.wait()))));
    let mut open = OUTPUTS;
    let how = watch(&received, group, start.until, &mut open);
    // Whatever it started and left behind ends with it.
    kill(group, Signal::KILL);
    sweep();
    drain(&received, open);
    End {
        how,
        output: Output::of(kept(&output), start.output_max),
        errors: String::from_utf8_lossy(&kept(&errors)).into_owned(),
    }
}

/// Moves bytes between the command and us, so that it never waits for a full pipe.
fn pump(
    child: &mut Child,
    input: String,
    output_max: usize,
    [output, errors]: [&Kept; 2],
    events: &SyncSender<Event>,
) {
    if let Some(mut stdin) = child.stdin.take() {
        // A command that does not read its input says so by closing it.
        std::thread::spawn(move || drop(stdin.write_all(input.as_bytes())));
    }
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    read(stdout, output, keep_beginning, output_max, events);
    read(stderr, errors, keep_end, ERRORS_BYTES_MAX, events);
}

/// Reads a pipe to its end on a thread of its own; `keep` says what is kept of it.
fn read(
    pipe: Option<impl Read + Send + 'static>,
    into: &Kept,
    keep: fn(&mut Vec<u8>, &[u8], usize),
    limit: usize,
    events: &SyncSender<Event>,
) {
    let (into, events) = (Arc::clone(into), events.clone());
    std::thread::spawn(move || {
        let mut buffer = [0; 16 * 1024];
        let mut pipe = pipe;
        while let Some(pipe) = &mut pipe
            && let Ok(read @ 1..) = pipe.read(&mut buffer)
        {
            let mut bytes = into.lock().unwrap_or_else(PoisonError::into_inner);
            keep(&mut bytes, buffer.get(..read).unwrap_or_default(), limit);
        }
        drop(events.send(Event::Drained));
    });
}

/// Keeps one byte more than the limit, which says that there was more.
fn keep_beginning(kept: &mut Vec<u8>, bytes: &[u8], limit: usize) {
    let room = (limit + 1).saturating_sub(kept.len()).min(bytes.len());
    kept.extend_from_slice(bytes.get(..room).unwrap_or_default());
}

fn keep_end(kept: &mut Vec<u8>, bytes: &[u8], limit: usize) {
    kept.extend_from_slice(bytes);
    kept.drain(..kept.len().saturating_sub(limit));
}

/// Passes on what the worker says, until it says no more.
fn listen(orders: BufReader<std::io::Stdin>, events: &SyncSender<Event>) {
    for line in orders.lines() {
        let Some(order) = line.ok().and_then(|line| serde_json::from_str(&line).ok()) else {
            break;
        };
        if events.send(Event::Order(order)).is_err() {
            return;
        }
    }
    drop(events.send(Event::PipeEnded));
}

/// Waits for the command's end, and brings it about when the claim ends.
fn watch(
    events: &Receiver<Event>,
    group: Option<Pid>,
    mut until: MonotonicNanos,
    open: &mut usize,
) -> How {
    let mut stop_by: Option<MonotonicNanos> = None;
    loop {
        let end = stop_by.map_or(until, |by| by.min(until));
        match events.recv_timeout(end.since(MonotonicNanos::now())) {
            Ok(Event::Order(Order::Until(renewed))) => until = renewed,
            Ok(Event::Order(Order::Stop(by))) => {
                stop_by = Some(by);
                kill(group, Signal::TERM);
            }
            Ok(Event::Order(Order::Kill) | Event::PipeEnded) => kill(group, Signal::KILL),
            Ok(Event::Exited(status)) => return status.map_or(How::Signalled(0), how),
            Ok(Event::Drained) => *open -= 1,
            Err(RecvTimeoutError::Timeout) => {
                kill(group, Signal::KILL);
                // Killed once; what is left is to wait for the end.
                until = MonotonicNanos(u64::MAX);
                stop_by = None;
            }
            Err(RecvTimeoutError::Disconnected) => return How::Signalled(0),
        }
    }
}

fn how(status: ExitStatus) -> How {
    match status.code().map(u8::try_from) {
        Some(Ok(code)) => How::Exited(code),
        Some(Err(_)) | None => How::Signalled(status.signal().unwrap_or_default()),
    }
}

fn kill(group: Option<Pid>, signal: Signal) {
    if let Some(group) = group {
        // Nobody may be left in it, which is what is wanted.
        kill_process_group(group, signal).ok();
    }
}

/// Ends every process that has become our child, until there is none.
fn sweep() {
    for _ in 0..SWEEPS_MAX {
        let children = children();
        if children.is_empty() {
            return;
        }
        for child in children {
            kill_process(child, Signal::KILL).ok();
            waitpid(Some(child), WaitOptions::empty()).ok();
        }
    }
}

/// Our children, as proc(5) lists them for each of our threads.
fn children() -> Vec<Pid> {
    let tasks = fs::read_dir("/proc/self/task")
        .into_iter()
        .flatten()
        .flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let mut found = Vec::new();
    for list in lists {
        let pids = list.split_ascii_whitespace();
        found.extend(pids.filter_map(|pid| pid.parse().ok().and_then(Pid::from_raw)));
    }
    found
}

/// Waits for both outputs to end; a holder of a pipe whom nobody could find is not waited for.
fn drain(events: &Receiver<Event>, mut open: usize) {
    let end = MonotonicNanos::now().after(DRAIN_LIMIT);
    while open > 0 {
        match events.recv_timeout(end.since(MonotonicNanos::now())) {
            Ok(Event::Drained) => open -= 1,
            Ok(_) => {}
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_beginning_and_an_end_are_kept_within_their_limits() {
        let (mut beginning, mut end) = (Vec::new(), Vec::new());
        for part in [b"abc".as_slice(), b"def", b"ghi"] {
            keep_beginning(&mut beginning, part, 4);
            keep_end(&mut end, part, 4);
        }
        assert_eq!(
            (beginning.as_slice(), end.as_slice()),
            (b"abcde".as_slice(), b"fghi".as_slice())
        );
    }
}
