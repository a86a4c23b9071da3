//! Published documents that tests compare with what the code makes.

use std::path::Path;

use serde_json::Value;

/// Compares the JSON Schema in a file with `schema`; with `IOTAX_UPDATE_DOCS` set, writes the file first.
///
/// # Panics
/// The two differ, or the file cannot be read.
pub fn is_published(file: impl AsRef<Path>, schema: &Value) {
    let file = file.as_ref();
    if std::env::var_os("IOTAX_UPDATE_DOCS").is_some() {
        std::fs::write(file, format!("{schema:#}\n")).expect("written");
    }
    let published = std::fs::read_to_string(file).expect("readable");
    let published: Value = serde_json::from_str(&published).expect("JSON");
    assert!(published == *schema, "{}: IOTAX_UPDATE_DOCS=1 writes it anew", file.display());
}
