//! Files that users name, read up to a limit: a wrong name must not fill the memory of the machine to be measured.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use iotax_model::exit::Exit;
use iotax_model::units::Bytes;

use super::{Failure, usage};

/// A kind of input file: its name in errors, its maximum size in bytes, and the remedy for a larger file.
#[derive(Debug, Clone, Copy)]
pub(super) struct InputKind {
    what: &'static str,
    most: u64,
    remedy: &'static str,
}

/// Output of another tool, for `iotax import`: up to 128 MiB.
pub(super) const RESULTS: InputKind = InputKind {
    what: "what another tool wrote",
    most: 128 << 20,
    remedy: "split it, and import its parts one by one",
};
/// A plan or job file: up to 16 MiB.
pub(super) const PLAN: InputKind =
    InputKind { what: "a plan or job file", most: 16 << 20, remedy: "split it into several plans" };
/// A run in iotax's JSON, for `iotax compare`: up to 128 MiB.
pub(super) const REPORT: InputKind =
    InputKind { what: "the JSON of a run", most: 128 << 20, remedy: "compare the runs by their numbers" };
/// The XML of a libvirt domain: up to 16 MiB.
pub(super) const DOMAIN: InputKind =
    InputKind { what: "the XML of a domain", most: 16 << 20, remedy: "give what virsh dumpxml writes" };
/// A file with an authentication token: up to 64 KiB.
pub(super) const TOKEN: InputKind =
    InputKind { what: "a file with a token", most: 64 << 10, remedy: "put the token alone in a file" };

/// Reads stdin. Fails if the input is too large for its kind.
pub(super) fn stdin(kind: InputKind) -> Result<Vec<u8>, Failure> {
    all_of(io::stdin(), None, "stdin", kind)
}

/// Reads a file. Fails if it cannot be read, is a directory, or is too large for its kind.
pub(super) fn bytes(path: &Path, kind: InputKind) -> Result<Vec<u8>, Failure> {
    let name = path.display().to_string();
    let cannot =
        |exit| move |error: io::Error| failure(exit, format!("cannot read {}: {error}", path.display()));
    let file = File::open(path).map_err(cannot(Exit::Usage))?;
    let metadata = file.metadata().map_err(cannot(Exit::Environment))?;
    if metadata.is_dir() {
        return Err(usage(format!("{name} is a directory; accepted: {}", kind.what)));
    }
    // Devices and pipes report no length.
    all_of(file, metadata.is_file().then_some(metadata.len()), &name, kind)
}

/// Reads a text file without its byte order mark. Fails as [`bytes`] does, and if the text is not UTF-8.
pub(super) fn text(path: &Path, kind: InputKind) -> Result<String, Failure> {
    let mut bytes = bytes(path, kind)?;
    // Windows editors write it at the start of a file.
    if bytes.starts_with(BYTE_ORDER_MARK) {
        bytes.drain(..BYTE_ORDER_MARK.len());
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        usage(format!("{} is not text: byte {at} is not UTF-8; accepted: {}", path.display(), kind.what))
    })
}

/// The byte order mark U+FEFF in UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Reads a source. Fails if it is larger than its kind's limit, after reading at most one byte beyond it.
fn all_of(source: impl Read, stated: Option<u64>, name: &str, kind: InputKind) -> Result<Vec<u8>, Failure> {
    let too_large = |size: String| {
        let InputKind { what, most, remedy } = kind;
        usage(format!("{name} is {size}; accepted: {what} of up to {}; {remedy}", Bytes(most)))
    };
    // Files in /proc report length 0, so the limit is also checked while reading.
    if let Some(size) = stated.filter(|size| *size > kind.most) {
        return Err(too_large(format!("{size} bytes")));
    }
    let mut bytes = Vec::new();
    let most = kind.most + 1;
    source
        .take(most)
        .read_to_end(&mut bytes)
        .map_err(|error| failure(Exit::Environment, format!("cannot read {name}: {error}")))?;
    if bytes.len() as u64 == most {
        return Err(too_large(format!("larger than {most} bytes")));
    }
    Ok(bytes)
}

fn failure(exit: Exit, text: String) -> Failure {
    Failure { exit, error: anyhow::anyhow!(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: InputKind = InputKind { what: "a word", most: 8, remedy: "shorten it" };

    fn refusal(path: &Path) -> (Exit, String) {
        let failure = bytes(path, SMALL).expect_err("refused");
        (failure.exit, failure.error.to_string())
    }

    #[test]
    fn as_much_is_read_as_may_be_and_not_a_byte_more() {
        let temp = tempfile::tempdir().expect("directory");
        let file = temp.path().join("file");
        std::fs::write(&file, "12345678").expect("written");
        assert_eq!(text(&file, SMALL).ok().as_deref(), Some("12345678"));
        std::fs::write(&file, "\u{feff}12345").expect("written");
        assert_eq!(text(&file, SMALL).ok().as_deref(), Some("12345"));
        std::fs::write(&file, "123456789").expect("written");
        let (exit, words) = refusal(&file);
        assert_eq!(exit, Exit::Usage);
        assert_eq!(words, format!("{} is 9 bytes; accepted: a word of up to 8; shorten it", file.display()));
    }

    struct Endless(u64);
    impl Read for Endless {
        fn read(&mut self, part: &mut [u8]) -> io::Result<usize> {
            self.0 += part.len() as u64;
            assert!(self.0 <= 9, "{} bytes were asked for", self.0);
            Ok(part.len())
        }
    }

    #[test]
    fn what_has_no_end_is_refused_at_the_bound() {
        let (exit, words) = refusal(Path::new("/dev/zero"));
        assert_eq!(exit, Exit::Usage);
        assert!(
            words.starts_with("/dev/zero is larger than 9 bytes; accepted: a word of up to 8"),
            "{words}"
        );
        assert!(all_of(Endless(0), None, "a pipe", SMALL).is_err());
    }

    #[test]
    fn what_is_no_file_of_text_is_refused_by_its_name() {
        let temp = tempfile::tempdir().expect("directory");
        let (exit, words) = refusal(temp.path());
        assert_eq!(
            (exit, words.ends_with("is a directory; accepted: a word")),
            (Exit::Usage, true),
            "{words}"
        );
        let (exit, words) = refusal(&temp.path().join("none"));
        assert_eq!((exit, words.starts_with("cannot read ")), (Exit::Usage, true), "{words}");
        let file = temp.path().join("file");
        std::fs::write(&file, b"ab\xff").expect("written");
        let failure = text(&file, SMALL).expect_err("no text");
        assert!(failure.error.to_string().contains("is not text: byte 2 is not UTF-8"));
    }
}
