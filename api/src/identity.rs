//! API keys as text: `fp_<id>_<secret>`.
//!
//! Owns the form of a token, pure; who a key stands for is looked up elsewhere.
//! The id is 32 and the secret 64 hexadecimal digits in lower case. Only the
//! secret's SHA-256 is stored: a secret of 256 random bits needs no slower hash.

use fencepost_core::id::IdSource;
use sha2::{Digest as _, Sha256};

/// What every token begins with, so that scanners find leaked ones.
const PREFIX: &str = "fp_";

/// Hexadecimal digits of the public id: 128 bits.
const ID_DIGITS: usize = 32;

/// Hexadecimal digits of the secret: 256 bits.
const SECRET_DIGITS: usize = 64;

/// Makes a key: its public id, the hash to store, and the token to hand out once.
#[must_use]
pub fn generate(ids: &dyn IdSource) -> (String, [u8; 32], String) {
    let id = ids.uuid().as_simple().to_string();
    let secret = hex(&ids.secret());
    let hash = Sha256::digest(&secret).into();
    let token = format!("{PREFIX}{id}_{secret}");
    (id, hash, token)
}

/// Reads a token: its public id and the hash of its secret. `None` for any
/// other form, be it by one character or by its case.
#[must_use]
pub fn parse_token(token: &str) -> Option<(String, [u8; 32])> {
    let (id, secret) = token.strip_prefix(PREFIX)?.split_once('_')?;
    let lower_hex = |text: &str| {
        text.bytes()
            .all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
    };
    let well_formed = id.len() == ID_DIGITS
        && secret.len() == SECRET_DIGITS
        && lower_hex(id)
        && lower_hex(secret);
    well_formed.then(|| (id.to_owned(), Sha256::digest(secret).into()))
}

fn hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from_digit(nibble.into(), 16).unwrap_or('0');
    bytes
        .iter()
        .flat_map(|byte| [digit(byte >> 4), digit(byte & 15)])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencepost_service::system::SystemIds;

    #[test]
    fn a_token_is_read_as_it_was_made() {
        let (id, hash, token) = generate(&SystemIds);
        assert_eq!(parse_token(&token), Some((id, hash)));
        assert_eq!(token.len(), PREFIX.len() + ID_DIGITS + 1 + SECRET_DIGITS);
        assert_ne!(generate(&SystemIds).2, token);
    }

    #[test]
    fn a_token_that_differs_in_form_is_none() {
        let (_, _, token) = generate(&SystemIds);
        for other in [
            format!("{token}0"),
            token[..token.len() - 1].to_owned(),
            token.to_uppercase(),
            token.replacen("fp_", "fp-", 1),
            format!(" {token}"),
            format!("{token}\n"),
            token.replacen('_', "__", 1),
            String::new(),
            "fp__".to_owned(),
            format!("fp_{}_{}", "g".repeat(32), "0".repeat(64)),
            format!("fp_{}_{}", "é".repeat(16), "0".repeat(64)),
        ] {
            assert_eq!(parse_token(&other), None, "{other:?}");
        }
    }

    #[test]
    fn a_secret_of_another_case_or_digit_has_another_hash() {
        let (_, hash, token) = generate(&SystemIds);
        let last = if token.ends_with('0') { "1" } else { "0" };
        let other = format!("{}{last}", &token[..token.len() - 1]);
        assert_ne!(parse_token(&other).map(|(_, hash)| hash), Some(hash));
    }
}
