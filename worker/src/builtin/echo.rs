//! `echo`: answers its payload, digit for digit.

use async_trait::async_trait;

use crate::context::Context;
use crate::handler::{Handler, HandlerResult, Outcome};

/// Answers its payload.
#[derive(Debug, Clone, Copy, Default)]
pub struct Echo;

#[async_trait]
impl Handler for Echo {
    async fn run(&self, context: &Context) -> HandlerResult {
        Ok(Outcome::Completed(context.payload().to_owned()))
    }
}
