//! Signatures as Standard Webhooks has them (standardwebhooks.com, version 1):
//! `v1,` and the Base64 of HMAC-SHA256 over `<id>.<timestamp>.<body>`.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

/// What a secret may begin with.
const PREFIX: &str = "whsec_";

/// The specification asks for 24 to 64 bytes.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// A text that holds no usable secret. It is not shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected a secret on each line: `whsec_` and the Base64 of 24 to 64 bytes")]
pub struct InvalidSecret;

/// The secrets that calls are signed with: while one is being replaced, both.
#[derive(Clone, PartialEq, Eq)]
pub struct Secrets(Vec<Vec<u8>>);

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("redacted")
    }
}

impl Secrets {
    /// Reads one secret a line.
    ///
    /// # Errors
    /// [`InvalidSecret`] when any line is not one, or there is none.
    pub fn parse(text: &str) -> Result<Self, InvalidSecret> {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let secrets = lines
            .map(|line| {
                STANDARD
                    .decode(line.strip_prefix(PREFIX).unwrap_or(line))
                    .ok()
                    .filter(|secret| SECRET_BYTES.contains(&secret.len()))
                    .ok_or(InvalidSecret)
            })
            .collect::<Result<Vec<_>, _>>()?;
        if secrets.is_empty() {
            return Err(InvalidSecret);
        }
        Ok(Self(secrets))
    }

    /// The header's text: one signature for each secret, separated by spaces.
    pub fn sign(&self, id: &str, seconds: i64, body: &str) -> String {
        let signed = format!("{id}.{seconds}.{body}");
        let signatures = self.0.iter().filter_map(|secret| {
            // HMAC takes a key of any length.
            let mut mac = Hmac::<Sha256>::new_from_slice(secret).ok()?;
            mac.update(signed.as_bytes());
            Some(format!(
                "v1,{}",
                STANDARD.encode(mac.finalize().into_bytes())
            ))
        });
        signatures.collect::<Vec<_>>().join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the specification's reference libraries.
    #[test]
    fn the_published_example_is_signed_as_published() {
        let secrets = Secrets::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n").unwrap();
        let signature = secrets.sign(
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            1_614_265_330,
            "{\"test\": 2432232314}",
        );
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn while_a_secret_is_replaced_both_sign() {
        let one = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        let two = STANDARD.encode([7; 32]);
        let both = Secrets::parse(&format!("{one}\n{two}\n")).unwrap();
        let signed = both.sign("id", 1, "{}");
        let alone = |text| Secrets::parse(text).unwrap().sign("id", 1, "{}");
        assert_eq!(signed, format!("{} {}", alone(one), alone(&two)));
        assert_eq!(format!("{both:?}"), "redacted");
    }

    #[test]
    fn what_is_no_secret_is_refused() {
        for bad in ["", "\n", "whsec_", "hunter2", "whsec_c2hvcnQ="] {
            assert_eq!(Secrets::parse(bad), Err(InvalidSecret), "{bad}");
        }
    }
}
