//! `command`: a program that runs the jobs of a kind.
//!
//! It reads the payload on its standard input and writes its result to its
//! standard output; [`guard`] runs it, so that neither a killed nor a frozen
//! worker leaves it at work beyond its claim. Unless the kind is safe to
//! repeat, the run is an effect, named `command`.
//!
//! May crash anywhere: the guard sees the end of its pipe and kills what runs.

pub mod guard;
mod wire;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use async_trait::async_trait;
use fencepost_core::kind::{Command, OtherExit};
use fencepost_core::limits::{OUTCOME_BYTES_MAX, RESULT_BYTES_MAX};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::time::Instant;

use crate::call::{self, Ended, Refused};
use crate::context::{Context, EffectCall};
use crate::handler::{Handler, HandlerResult};
use wire::{End, How, MonotonicNanos, Order, Report, Start};

/// Where programs are looked for when the kind says nothing of it.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Values shorter than this are no secrets, and replacing them would garble texts.
const SECRET_MIN: usize = 6;

/// What stands for the value of a variable in an error text.
const REDACTED: &str = "redacted";

/// Runs a program for each job.
#[derive(Debug)]
pub struct CommandHandler {
    /// This program again, and the verb that calls [`guard::run`].
    guard: (PathBuf, Vec<String>),
    command: Command,
    safe_to_repeat: bool,
    /// The variables of this process that the command is given.
    inherited: BTreeMap<String, String>,
}

/// What a command is told: its variables and its input.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) env: Vec<(String, String)>,
    pub(crate) input: String,
}

impl Told {
    fn of_job(context: &Context, key: &str) -> Self {
        let told = [
            ("JOB_ID", context.job().to_string()),
            ("EPOCH", context.epoch().to_string()),
            ("ATTEMPT", context.attempt().to_string()),
            ("DEADLINE", context.deadline_at().to_string()),
            ("KIND", context.kind().to_string()),
            ("KEY", key.to_owned()),
        ];
        let told = told.map(|(name, value)| (format!("FENCEPOST_{name}"), value));
        let trace = context.job.trace.clone();
        let trace = trace.map(|trace| ("TRACEPARENT".to_owned(), trace));
        Self {
            env: told.into_iter().chain(trace).collect(),
            input: context.payload().to_owned(),
        }
    }
}

impl CommandHandler {
    /// By a guard's program and its arguments, which must call [`guard::run`].
    #[must_use]
    pub fn new(
        guard: (PathBuf, Vec<String>),
        command: Command,
        safe_to_repeat: bool,
        inherited: BTreeMap<String, String>,
    ) -> Self {
        Self {
            guard,
            command,
            safe_to_repeat,
            inherited,
        }
    }

    fn start(&self, told: Told, until: Instant) -> Start {
        let mut env = BTreeMap::from([("PATH".to_owned(), PATH.to_owned())]);
        env.extend(self.inherited.clone());
        env.extend(self.command.env.clone());
        env.extend(told.env);
        let (program, arguments) = match self.command.program.split_first() {
            Some((program, arguments)) => (program.clone(), arguments.to_vec()),
            None => Default::default(),
        };
        Start {
            program,
            arguments,
            directory: self.command.directory.clone(),
            user: self.command.user,
            env: env.into_iter().collect(),
            input: told.input,
            output_max: if self.safe_to_repeat {
                RESULT_BYTES_MAX
            } else {
                OUTCOME_BYTES_MAX
            },
            until: instant(until),
        }
    }

    /// Runs the command for a job to its end, whatever brings that about.
    async fn run_guarded(&self, context: &Context, call: EffectCall) -> Ended {
        let told = Told::of_job(context, &call.key);
        let mut guard = match self.guard(told, context.lease.ends_at()).await {
            Ok(guard) => guard,
            Err(error) => return not_started(&error.to_string()),
        };
        let end = guard.until_end(context, self.command.stop_grace).await;
        self.judge(end)
    }

    /// Runs the command once, outside a job, for at most `limit`.
    pub(crate) async fn run_once(&self, told: Told, limit: Duration) -> Ended {
        match self.guard(told, Instant::now() + limit).await {
            Ok(mut guard) => {
                let end = guard.end().await;
                self.judge(end)
            }
            Err(error) => not_started(&error.to_string()),
        }
    }

    async fn guard(&self, told: Told, until: Instant) -> std::io::Result<Guard> {
        let start = serde_json::to_string(&self.start(told, until))?;
        let (program, arguments) = &self.guard;
        let mut child = tokio::process::Command::new(program)
            .arg0("fencepost")
            .args(arguments)
            .env_clear()
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let pipes = || std::io::Error::other("the guard has no pipes");
        let mut guard = Guard {
            orders: Some(child.stdin.take().ok_or_else(pipes)?),
            reports: BufReader::new(child.stdout.take().ok_or_else(pipes)?).lines(),
            group: None,
            // Dropping it leaves the guard alone: the end of its pipe tells it.
            _child: child,
        };
        guard.write(start).await;
        Ok(guard)
    }

    /// What a command's end says of the call.
    fn judge(&self, end: Option<End>) -> Ended {
        let Some(End {
            how,
            output,
            errors,
        }) = end
        else {
            return Ended::Unclear(Refused::new(
                "command_lost",
                "the guard of the command ended without an answer",
            ));
        };
        let code = match how {
            How::Exited(0) => return Ended::Done(output),
            How::NotStarted(error) => return not_started(&error),
            How::Signalled(signal) => {
                let message = self.text(
                    &format!("the command was ended by signal {signal}"),
                    &errors,
                );
                return Ended::Unclear(Refused::new("command_killed", message));
            }
            How::Exited(code) => code,
        };
        let message = self.text(&format!("the command ended with exit code {code}"), &errors);
        if self.command.declined.contains(&code) {
            return Ended::Declined(Refused::new("command_declined", message));
        }
        if self.command.dead.contains(&code) {
            return Ended::Declined(Refused::new("command_refused", message).for_good());
        }
        match self.command.other {
            OtherExit::Unknown => Ended::Unclear(Refused::new("command_failed", message)),
            OtherExit::Retry => Ended::Declined(Refused::new("command_failed", message)),
            OtherExit::Dead => Ended::Declined(Refused::new("command_failed", message).for_good()),
        }
    }

    /// An error text with the tail of standard error, without the values of variables.
    fn text(&self, what: &str, errors: &str) -> String {
        let mut errors = errors.trim().to_owned();
        for secret in self.command.env.values().chain(self.inherited.values()) {
            if secret.len() >= SECRET_MIN {
                errors = errors.replace(secret.as_str(), REDACTED);
            }
        }
        if errors.is_empty() {
            what.to_owned()
        } else {
            format!("{what}: {errors}")
        }
    }
}

fn not_started(why: &str) -> Ended {
    Ended::Declined(Refused::new(
        "command_not_started",
        format!("the command could not be started: {why}"),
    ))
}

/// An instant of this process on the clock that the guard shares.
fn instant(at: Instant) -> MonotonicNanos {
    // The shared clock first: what passes in between is not granted.
    let now = MonotonicNanos::now();
    now.after(at.saturating_duration_since(Instant::now()))
}

/// The worker's end of a guard. Dropping it kills the command.
#[derive(Debug)]
struct Guard {
    /// None when the guard stopped reading.
    orders: Option<ChildStdin>,
    reports: Lines<BufReader<ChildStdout>>,
    group: Option<Pid>,
    _child: Child,
}

impl Guard {
    async fn write(&mut self, mut line: String) {
        line.push('\n');
        if let Some(orders) = &mut self.orders
            && orders.write_all(line.as_bytes()).await.is_err()
        {
            self.orders = None;
        }
    }

    async fn order(&mut self, order: Order) {
        if let Ok(line) = serde_json::to_string(&order) {
            self.write(line).await;
        }
    }

    /// Waits until the guard says how the command ended.
    async fn end(&mut self) -> Option<End> {
        loop {
            match read(self.reports.next_line().await)? {
                Report::Started(group) => self.group = Pid::from_raw(group),
                Report::Ended(end) => {
                    self.group = None;
                    return Some(end);
                }
            }
        }
    }

    /// Passes renewals and the wish to end on, until the guard says how the command ended.
    async fn until_end(&mut self, context: &Context, stop_grace: Duration) -> Option<End> {
        let mut lease = context.lease.clone();
        let (mut asked, mut stopped) = (false, false);
        loop {
            tokio::select! {
                line = self.reports.next_line() => match read(line) {
                    Some(Report::Started(group)) => self.group = Pid::from_raw(group),
                    Some(Report::Ended(end)) => {
                        self.group = None;
                        return Some(end);
                    }
                    None => return None,
                },
                () = lease.moved() => self.order(Order::Until(instant(lease.ends_at()))).await,
                () = context.lease.told(), if !asked => {
                    asked = true;
                    let by = MonotonicNanos::now().after(stop_grace);
                    self.order(Order::Stop(by)).await;
                }
                _ = context.lease.stopped(), if !stopped => {
                    stopped = true;
                    self.order(Order::Kill).await;
                }
            }
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // Set while nobody has said that the command has ended: if the guard
        // was killed, its command is ours to end; otherwise the guard kills it too.
        if let Some(group) = self.group {
            kill_process_group(group, Signal::KILL).ok();
        }
    }
}

fn read(line: std::io::Result<Option<String>>) -> Option<Report> {
    serde_json::from_str(&line.ok()??).ok()
}

#[async_trait]
impl Handler for CommandHandler {
    async fn run(&self, context: &Context) -> HandlerResult {
        call::make(context, "command", self.safe_to_repeat, |call| {
            self.run_guarded(context, call)
        })
        .await
    }
}
