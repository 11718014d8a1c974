//! Submissions, read and refused.

use fencepost_core::kind::Kinds;

use super::*;

struct Caller {
    catalogue: Catalogue,
    tenant: Tenant,
    owner: Owner,
    now: Timestamp,
    key: OperationKey,
}

impl Caller {
    fn new() -> Self {
        Self {
            catalogue: Catalogue::compile(&Kinds::builtin()).unwrap(),
            tenant: Tenant::new("a").unwrap(),
            owner: Owner::new("b").unwrap(),
            now: Timestamp::parse("2026-12-01T00:00:00Z").unwrap(),
            key: OperationKey::new("k").unwrap(),
        }
    }

    fn reading(&self) -> Reading<'_> {
        Reading {
            catalogue: &self.catalogue,
            tenant: &self.tenant,
            owner: &self.owner,
            now: self.now,
            trace: None,
        }
    }
}

fn read(text: &str) -> Result<Submit, String> {
    let caller = Caller::new();
    let submit = caller.reading().one(text, caller.key.clone());
    submit.map_err(|error| format!("{error:?}"))
}

fn item(text: &str) -> Result<Submit, String> {
    let submit = Caller::new().reading().item(text);
    submit.map_err(|error| format!("{error:?}"))
}

fn echo(options: &str) -> Result<Submit, String> {
    read(&format!(r#"{{"kind":"echo","payload":{{}}{options}}}"#))
}

#[test]
fn the_payload_is_kept_as_it_was_sent() {
    let payload = r#"{ "n" : [9007199254740993, 1e309, -0, 1.0],"a":"\u0041" }"#;
    let submit = read(&format!(r#"{{"kind":"echo","payload": {payload} }}"#)).unwrap();
    assert_eq!(submit.payload, payload);
    let other = r#"{"a":"A","n":[9007199254740993,1e309,-0,1.0]}"#;
    let same = read(&format!(r#"{{"payload":{other},"kind":"echo"}}"#)).unwrap();
    assert_eq!(submit.fingerprint, same.fingerprint);
}

#[test]
fn what_was_left_out_is_as_the_kind_says() {
    let submit = echo("").unwrap();
    assert_eq!(submit.priority, 0);
    assert_eq!(submit.max_attempts, 3);
    assert_eq!(submit.run, None);
    assert_eq!(submit.deadline, Moment::After(Duration::from_hours(1)));
    assert_eq!(submit.queue.as_str(), "default");
    let nulls = echo(r#","run_at":null,"priority":null,"timeout_ms":null"#).unwrap();
    assert_eq!(nulls.fingerprint, submit.fingerprint);
}

#[test]
fn options_are_read_as_sent() {
    let submit = echo(
        r#","delay_ms":5,"deadline_at":"2026-12-01T05:30:00.5+05:30","priority":9,"max_attempts":100"#,
    )
    .unwrap();
    assert_eq!(submit.run, Some(Moment::After(Duration::from_millis(5))));
    let at = Timestamp::parse("2026-12-01T00:00:00.500Z").unwrap();
    assert_eq!(submit.deadline, Moment::At(at));
    assert_eq!((submit.priority, submit.max_attempts), (9, 100));
}

#[test]
fn a_refusal_names_its_field() {
    for (options, field) in [
        (r#","run_at":"2026-12-01T00:00:00""#, "`run_at`"),
        (r#","run_at":"2037-12-01T00:00:00Z""#, "`run_at`"),
        (r#","run_at":5"#, "`run_at`"),
        (r#","delay_ms":-1"#, "`delay_ms`"),
        (r#","delay_ms":"1""#, "`delay_ms`"),
        (r#","delay_ms":1e3"#, "`delay_ms`"),
        (r#","delay_ms":99999999999999999999"#, "`delay_ms`"),
        (
            r#","delay_ms":1,"run_at":"2026-12-01T00:00:00Z""#,
            "`delay_ms`",
        ),
        (r#","deadline_at":"tomorrow""#, "`deadline_at`"),
        (r#","timeout_ms":0"#, "`timeout_ms`"),
        (
            r#","timeout_ms":1,"deadline_at":"2026-12-01T00:00:00Z""#,
            "`timeout_ms`",
        ),
        (r#","priority":10"#, "`priority`"),
        (r#","max_attempts":0"#, "`max_attempts`"),
        (r#","max_attempts":101"#, "`max_attempts`"),
        (r#","kind":"echo""#, "`kind`"),
        (r#","key":"k""#, "`key`"),
        (r#","tenant":"b""#, "`tenant`"),
    ] {
        let error = echo(options).unwrap_err();
        assert!(error.contains(field), "{options}: {error}");
    }
    for (body, field) in [
        (r#"{"kind":"echo"}"#, "`payload`"),
        (r#"{"payload":1}"#, "`kind`"),
        (r#"{"kind":null,"payload":1}"#, "`kind`"),
        (r#"{"kind":["echo"],"payload":1}"#, "`kind`"),
        (r#"{"kind":"no.such","payload":1}"#, "`kind`"),
        (r#"{"kind":"echo\u0000","payload":1}"#, "`kind`"),
        (r#"{"kind":"echo","payload":{"a":1,"a":2}}"#, "`payload`"),
        (r#"{"kind":"echo","payload":"\u0000"}"#, "`payload`"),
        (r#"{"kind":"echo","payload":{"\u0000":1}}"#, "`payload`"),
        (r#"{"kind":"echo","payload":"\ud800"}"#, "`payload`"),
        (r#"{"kind":"echo","payload":1"#, "the body"),
    ] {
        let error = read(body).unwrap_err();
        assert!(error.contains(field), "{body}: {error}");
    }
    assert!(read(r#"{"kind":"echo","payload":null}"#).is_ok());
}

#[test]
fn payloads_are_bounded_in_length_and_depth() {
    let text = |length: usize| {
        format!(
            r#"{{"kind":"echo","payload":"{}"}}"#,
            "x".repeat(length - 2)
        )
    };
    assert!(read(&text(64 * 1024)).is_ok());
    assert!(
        read(&text(64 * 1024 + 1))
            .unwrap_err()
            .contains("PayloadTooLarge")
    );
    let deep = |depth: usize| {
        let (open, close) = ("[".repeat(depth), "]".repeat(depth));
        format!(r#"{{"kind":"echo","payload":{open}{close}}}"#)
    };
    assert!(read(&deep(64)).is_ok());
    assert!(read(&deep(65)).unwrap_err().contains("deeper"));
    assert!(read(&deep(30_000)).unwrap_err().contains("deeper"));
}

#[test]
fn an_item_of_a_batch_has_its_own_key() {
    let submit = item(r#"{"key":"x","kind":"echo","payload":1}"#).unwrap();
    assert_eq!(submit.key.as_str(), "x");
    for bad in [
        r#"{"kind":"echo","payload":1}"#,
        r#"{"key":"","kind":"echo","payload":1}"#,
        r#"{"key":"a b","kind":"echo","payload":1}"#,
        r#"{"key":"a\u0000b","kind":"echo","payload":1}"#,
        r#"{"key":1,"kind":"echo","payload":1}"#,
    ] {
        assert!(item(bad).unwrap_err().contains("`key`"), "{bad}");
    }
}

#[test]
fn blob_references_are_objects_of_exactly_their_shape() {
    let reference = |digit: &str| format!(r#"{{"blob":"sha256:{}"}}"#, digit.repeat(64));
    let (one, two) = (reference("1"), reference("2"));
    let found = |payload: &str| {
        let canonical = canonical(payload).unwrap();
        blobs(&canonical)
            .map(|hashes| hashes.len())
            .map_err(|error| format!("{error:?}"))
    };
    assert_eq!(found(&one), Ok(1));
    assert_eq!(
        found(&format!(r#"{{"a":[{one},{{"b":{two}}},{one}]}}"#)),
        Ok(2)
    );
    assert_eq!(
        found(&one.replace(':', " : ").replace("sha256 : ", "sha256:")),
        Ok(1)
    );
    assert_eq!(found(&one.replace("blob", r"b\u006cob")), Ok(1));
    // Not of the shape: another member beside it, another value, or text about one.
    assert_eq!(found(&one.replace('}', r#","x":1}"#)), Ok(0));
    assert_eq!(found(&one.replace('{', r#"{"a":1,"#)), Ok(0));
    assert_eq!(found(r#"{"blob":"a name"}"#), Ok(0));
    assert_eq!(found(r#"{"blob":{"blob":"x\"}"}}"#), Ok(0));
    let quoted = serde_json::to_string(&one).unwrap();
    assert_eq!(found(&quoted), Ok(0));
    assert_eq!(found(&format!("{{{quoted}:1}}")), Ok(0));
    assert!(
        found(r#"{"blob":"sha256:XYZ"}"#)
            .unwrap_err()
            .contains("`payload`")
    );
    let many: Vec<String> = (0..17)
        .map(|n| format!(r#"{{"blob":"sha256:{n:064}"}}"#))
        .collect();
    assert_eq!(found(&format!("[{}]", many[..16].join(","))), Ok(16));
    assert!(
        found(&format!("[{}]", many.join(",")))
            .unwrap_err()
            .contains("16")
    );
}
