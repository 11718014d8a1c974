//! Starts the broker that tests share and prints what to export for them;
//! ends with its standard input.

use std::io::{Write as _, stdin, stdout};

use anyhow::Result;
use fencepost_testkit::broker::{ADMIN_URL_VARIABLE, AMQP_URL_VARIABLE, start_shared};

#[tokio::main]
async fn main() -> Result<()> {
    let node = start_shared().await?;
    // Without the path: each test adds a virtual host of its own.
    let amqp = format!("amqp://guest:guest@{}", node.amqp_address());
    writeln!(stdout(), "export {AMQP_URL_VARIABLE}={amqp}")?;
    writeln!(stdout(), "export {ADMIN_URL_VARIABLE}={}", node.admin_url())?;
    std::io::copy(&mut stdin(), &mut std::io::sink())?;
    Ok(())
}
