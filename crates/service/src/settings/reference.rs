//! The reference page of the settings, made from the table.

use super::table::TABLE;

/// The text of `docs/reference/settings.md`.
#[must_use]
pub fn reference() -> String {
    let mut page = String::from(
        "# Settings\n\n\
         Read from a file (`fencepost.toml` in the working directory, or the one that `--config` or `FENCEPOST_CONFIG` names),\n\
         then from the environment, then from flags; the later wins. A bad value ends the process with exit code 78 and a line\n\
         that names the setting, before any socket is opened. Durations are written with their unit: `500ms`, `30s`, `5m`, `1h`.\n\n\
         This page is generated: `UPDATE_REFERENCE=1 cargo test -p fencepost-service reference`.\n\n\
         | key in the file | variable | flag | is | default | meaning |\n|---|---|---|---|---|---|\n",
    );
    for definition in TABLE {
        let flag = if definition.flag {
            format!("`--{}`", definition.key.replace('_', "-"))
        } else {
            "–".to_owned()
        };
        let default = if definition.default.is_empty() {
            "not set".to_owned()
        } else {
            format!("`{}`", definition.default)
        };
        let cells = [
            format!("`{}`", definition.key),
            format!("`{}`", definition.variable),
            flag,
            definition.shape.expected(),
            default,
            definition.doc.to_owned(),
        ];
        page.push_str("| ");
        page.push_str(&cells.join(" | "));
        page.push_str(" |\n");
    }
    page.push_str(KINDS);
    page
}

const KINDS: &str = r#"
## Kinds

`[defaults]` holds the policy of every kind, `[kinds."name"]` one kind. The builtin kinds `echo` (queue `default`),
`document.extract` and `document.prepare` (queue `documents`) are there without a file; a table of their name changes them.

| key | is | default | meaning |
|---|---|---|---|
| `queue` | a name | `default` | the lane its jobs wait in |
| `builtin` | echo, document.extract or document.prepare | – | run by a handler that ships with Fencepost |
| `command` | a table, below | – | run by a program |
| `http` | a table, below | – | run by a request to another service |
| `registered` | true or false | `false` | run by a Rust worker of your own |
| `safe_to_repeat` | true or false | `false` | a command or call that may be made again after it broke off: no effect, never `unknown` |
| `probe` | a table, below | – | asks the outside system whether an effect of an unknown job happened |
| `planner` | a table, below | proposes extract, validate, draft | the model that plans the steps of `document.prepare` |
| `concurrency` | a count | one per core for commands, else none | jobs of this kind that one worker runs at once |
| `max_attempts` | 1 to 100 | `3` | attempts of a job that asks for no other number |
| `lease` | 500ms to 1h | `30s` | how long a claim holds; renewed at a third of it |
| `deadline` | a duration | `1h` | from acceptance until the job is given up |
| `backoff` | `{ initial = "1s", max = "5m" }` | as shown | pauses between attempts, with full jitter |
| `on_crash` | retry or hold | `retry` | what becomes of a job whose worker was lost; `hold` waits for a person |
| `payload_max` | a size up to 64KiB | `64KiB` | longer payloads are refused |
| `schema` | a path, relative to the file | – | a JSON Schema that payloads must fit |

`max_attempts`, `lease`, `deadline`, `backoff` and `on_crash` may stand in `[defaults]` too. A kind names one of `builtin`,
`command`, `http` and `registered`. Paths are relative to the settings file.

A kind with a `concurrency` shares its queue badly: what waits for its turn keeps others waiting, and what does not fit in
hand is put back for a while. Give it a queue of its own.

### `command`

| key | is | default | meaning |
|---|---|---|---|
| `program` | a list | needed | the program and its arguments; no shell is involved |
| `directory` | a path | that of the settings file | where it runs |
| `user` | `uid` or `uid:gid` | the worker's own | as whom it runs; the worker must be allowed to change to it |
| `env` | a table | empty | its environment, beside `PATH` and the `FENCEPOST_` variables |
| `inherit_env` | a list | empty | variables of the worker that it gets too |
| `stop_grace` | a duration | `5s` | after a cancellation: from SIGTERM to SIGKILL |
| `exit.declined` | a list of codes | `[75]` | nothing was done: try again |
| `exit.dead` | a list of codes | `[]` | nothing was done, and it would fail again |
| `exit.other` | unknown, retry or dead | `unknown`; `retry` when safe to repeat | what any other code but 0 says |

### `http`

| key | is | default | meaning |
|---|---|---|---|
| `url` | a URL | needed | where the payload is posted; never taken from a payload |
| `secret_file` | a path | – | the secret that requests are signed with (`whsec_…` or bare Base64), read by workers at their start |
| `timeout` | a duration | `30s` | how long a call may take |
| `declined` | a list of statuses from 500 to 599 | `[]` | by these this receiver says that nothing was done; 503 always does |

### `probe`

| key | is | default | meaning |
|---|---|---|---|
| `command` | a table as above | – | a program that asks |
| `http` | a table as above | – | a request that asks |
| `timeout` | a duration | `30s` | how long one question may take |
| `every` | a duration | by hand only | how often it asks by itself, beginning so long after the job became unknown |

### `planner`

`{ openai = { … } }`, with

| key | is | default | meaning |
|---|---|---|---|
| `base_url` | a URL | needed | an OpenAI-compatible endpoint, up to and without `/chat/completions` |
| `model` | a name | needed | which model; it must know tool calls |
| `key_file` | a path | – | the key that is sent as a bearer token, read by workers at their start |
| `timeout` | a duration | `60s` | how long one question may take |
"#;
