//! Reads an undo log: the effects in it that have not been undone.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use super::{Line, NOT_UNDERSTOOD, PendingEffect, UndoLogError, failed, root};

/// The contents of an undo log: effects that have not been undone.
pub(super) struct Record {
    pub(super) pending: BTreeMap<u64, PendingEffect>,
    pub(super) next: u64,
    /// Length in bytes, without an incomplete last line.
    pub(super) length: u64,
    /// Number of the effect whose removal had begun, from an incomplete last line; `None` without such a line.
    pub(super) begun: Option<u64>,
}

impl Record {
    /// Reads an undo log from its beginning. An incomplete last line was not synced, so its effect has not happened; a last line that lacks
    /// only its newline may show that a removal had begun ([`Self::begun`]). Fails on any other line that cannot be parsed, because it may
    /// hide an effect.
    pub(super) fn read(mut file: &File, path: &Path) -> Result<Self, UndoLogError> {
        let mut text = Vec::new();
        file.read_to_end(&mut text).map_err(failed("cannot read", path))?;
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let mut record = Self { pending: BTreeMap::new(), next: 0, length: whole as u64, begun: None };
        for line in text[..whole].split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            match serde_json::from_slice(line) {
                Ok(Line::Record { id, effect, within }) => {
                    let form = effect.check_form(&root());
                    let next = id.checked_add(1).filter(|_| form.is_ok());
                    let Some(next) = next else {
                        let reason = form.err().unwrap_or_else(|| format!("no effect has the number {id}"));
                        return Err(failed(NOT_UNDERSTOOD, path)(io::Error::other(reason)));
                    };
                    record.next = record.next.max(next);
                    record.pending.insert(id, PendingEffect::new(effect, within, None));
                }
                Ok(Line::Undone { id }) => {
                    record.pending.remove(&id);
                }
                Err(error) => return Err(failed(NOT_UNDERSTOOD, path)(error.into())),
            }
        }
        if let Ok(Line::Undone { id }) = serde_json::from_slice(&text[whole..])
            && let Some(pending) = record.pending.get_mut(&id)
        {
            (pending.removing, record.begun) = (true, Some(id));
        }
        Ok(record)
    }
}
