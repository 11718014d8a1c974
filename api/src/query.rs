//! The parameters after the `?`: each known, each once unless it may repeat.

use axum::extract::{FromRequestParts, Query as Pairs};
use axum::http::request::Parts;

use crate::fields::refuse_unknown;
use crate::problem::ApiError;

/// A page by default: a screenful.
pub(crate) const PAGE_DEFAULT: u32 = 50;

/// The longest page: its rows are held in memory while it is written.
pub(crate) const PAGE_MAX: u32 = 100;

/// The parameters in order.
#[derive(Debug)]
pub(crate) struct Query(Vec<(String, String)>);

impl<S: Sync> FromRequestParts<S> for Query {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, ApiError> {
        let Pairs(pairs) = Pairs::try_from_uri(&parts.uri)
            .map_err(|_| ApiError::invalid("the query after the `?` cannot be read"))?;
        Ok(Self(pairs))
    }
}

impl Query {
    /// A parameter that may be there once.
    pub(crate) fn one(&mut self, name: &'static str) -> Result<Option<String>, ApiError> {
        let mut values = self.all(name);
        match values.pop() {
            Some(_) if !values.is_empty() => {
                Err(ApiError::invalid(format!("`{name}` is there twice")))
            }
            value => Ok(value),
        }
    }

    /// A parameter that may be repeated.
    pub(crate) fn all(&mut self, name: &'static str) -> Vec<String> {
        let taken = self.0.extract_if(.., |(key, _)| key == name);
        taken.map(|(_, value)| value).collect()
    }

    /// A parameter read into a checked value.
    pub(crate) fn parsed<T>(
        &mut self,
        name: &'static str,
        parse: impl FnOnce(&str) -> Option<T>,
        expected: &str,
    ) -> Result<Option<T>, ApiError> {
        let Some(text) = self.one(name)? else {
            return Ok(None);
        };
        let value = parse(&text);
        value
            .map(Some)
            .ok_or_else(|| ApiError::invalid(format!("`{name}` must be {expected}")))
    }

    /// `limit`: the length of a page.
    pub(crate) fn limit(&mut self) -> Result<u32, ApiError> {
        let expected = format!("a whole number from 1 to {PAGE_MAX}");
        let parse = |text: &str| {
            text.parse()
                .ok()
                .filter(|limit| (1..=PAGE_MAX).contains(limit))
        };
        Ok(self
            .parsed("limit", parse, &expected)?
            .unwrap_or(PAGE_DEFAULT))
    }

    /// Refuses what nobody asked for.
    pub(crate) fn finish(self) -> Result<(), ApiError> {
        match self.0.first() {
            None => Ok(()),
            Some((name, _)) => Err(refuse_unknown("parameter", name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(text: &str) -> Query {
        let uri = format!("/jobs?{text}").parse().unwrap();
        Query(Pairs::try_from_uri(&uri).unwrap().0)
    }

    #[test]
    fn a_parameter_that_is_there_twice_unknown_or_out_of_bounds_is_refused() {
        assert!(query("kind=a&kind=b").one("kind").is_err());
        assert_eq!(query("state=a&x=1&state=b").all("state"), ["a", "b"]);
        assert!(query("x=1").finish().is_err());
        assert_eq!(query("tenant=b").finish().unwrap_err().status(), 403);
        for bad in [
            "limit=0",
            "limit=101",
            "limit=-1",
            "limit=",
            "limit=1.0",
            "limit=%FF",
        ] {
            assert!(query(bad).limit().is_err(), "{bad}");
        }
        assert_eq!(query("limit=100").limit().unwrap(), 100);
        assert_eq!(query("").limit().unwrap(), PAGE_DEFAULT);
    }
}
