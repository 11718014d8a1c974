//! Where the broker is and who we are there.

use std::fmt;
use std::str::FromStr;

use lapin::uri::{AMQPScheme, AMQPUri};

use crate::error::BrokerError;

/// An AMQP URL. Its password appears in no text made of it.
#[derive(Clone, PartialEq, Eq)]
pub struct AmqpUrl(AMQPUri);

impl AmqpUrl {
    /// The URL as lapin wants it, with our heartbeat instead of the URL's.
    pub(crate) fn uri(&self, heartbeat_seconds: u16) -> AMQPUri {
        let mut uri = self.0.clone();
        uri.query.heartbeat = Some(heartbeat_seconds);
        uri
    }

    /// Host, port and virtual host, for messages.
    pub fn address(&self) -> String {
        let AMQPUri {
            authority, vhost, ..
        } = &self.0;
        let vhost = vhost.trim_start_matches('/');
        format!("{}:{}/{vhost}", authority.host, authority.port)
    }
}

impl FromStr for AmqpUrl {
    type Err = BrokerError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // The parser's own errors repeat the URL with its password.
        let mut uri: AMQPUri = text.trim().parse().map_err(|_| {
            BrokerError::InvalidUrl("must be of the form amqp://user:password@host:port/vhost")
        })?;
        if uri.scheme == AMQPScheme::AMQPS {
            return Err(BrokerError::InvalidUrl(
                "asks for TLS, which this build does not speak: use amqp:// \
                 through a TLS tunnel or a private network",
            ));
        }
        // The parser drops a literal IPv6 address and puts localhost there.
        if let Some((_, rest)) = text.split_once("://") {
            let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
            let host = authority.rsplit_once('@').map_or(authority, |(_, h)| h);
            if let Some((literal, _)) = host.strip_prefix('[').and_then(|h| h.split_once(']')) {
                literal.clone_into(&mut uri.authority.host);
            }
        }
        // A bare slash would name the virtual host "", which nobody has.
        if uri.vhost.is_empty() {
            "/".clone_into(&mut uri.vhost);
        }
        Ok(Self(uri))
    }
}

impl fmt::Display for AmqpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = &self.0.authority.userinfo.username;
        write!(f, "amqp://{user}@{}", self.address())
    }
}

impl fmt::Debug for AmqpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<AmqpUrl, BrokerError> {
        text.parse()
    }

    #[test]
    fn no_text_made_of_a_url_holds_its_password() {
        let url = parse("amqp://me:s3cret@mq.example:5673/jobs").unwrap();
        assert_eq!(url.to_string(), "amqp://me@mq.example:5673/jobs");
        assert_eq!(format!("{url:?}"), url.to_string());
        for bad in [
            "amqp:me:s3cret",
            "http://me:s3cret@h",
            "amqps://me:s3cret@h",
            "s3cret",
        ] {
            let error = parse(bad).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn the_default_virtual_host_has_three_spellings() {
        for same in ["amqp://h", "amqp://h/", "amqp://h/%2f"] {
            assert_eq!(parse(same).unwrap().0.vhost, "/", "{same}");
        }
    }

    #[test]
    fn an_address_of_version_six_is_kept() {
        let url = parse("amqp://me:pass@[::1]:5673/%2f").unwrap();
        assert_eq!(
            (url.0.authority.host.as_str(), url.0.authority.port),
            ("::1", 5673)
        );
    }

    #[test]
    fn our_heartbeat_replaces_the_urls() {
        let url = parse("amqp://h?heartbeat=0").unwrap();
        assert_eq!(url.uri(10).query.heartbeat, Some(10));
    }
}
