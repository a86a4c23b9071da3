//! Compares the tables of a documentation page with computed ones.

use std::path::PathBuf;

use iotax_testkit::thorough;

/// A table of the page.
pub(crate) fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let head: Vec<String> = head.iter().map(ToString::to_string).collect();
    let rule: Vec<String> = head.iter().map(|_| "---".to_owned()).collect();
    let rows: String = rows.iter().map(|row| line(row)).collect();
    line(&head) + &line(&rule).replace(' ', "") + &rows
}

/// Asserts that docs/statistics.md contains a computed table; with `IOTAX_UPDATE_DOCS=1`, writes it there.
pub(crate) fn holds(name: &str, made: &str) {
    holds_in("statistics.md", name, made);
}

/// Same as [`holds`], for any page of docs.
pub(crate) fn holds_in(page: &str, name: &str, made: &str) {
    let path = path(page);
    let page = std::fs::read_to_string(&path).expect("the page is there");
    let [before, there, after] = around(&page, name);
    if there == made {
        return;
    }
    let asked = std::env::var_os("IOTAX_UPDATE_DOCS").is_some();
    assert!(
        asked,
        "{} is not what is simulated; IOTAX_UPDATE_DOCS=1 updates it:\n{made}\nthere:\n{there}",
        path.display()
    );
    std::fs::write(&path, [before, made, after].concat()).expect("written");
}

/// Asserts that a page of docs contains a computed table; with `IOTAX_UPDATE_DOCS=1`, writes it there. Unless tests are thorough, only a
/// few rows are computed, and each must be on the page.
pub(crate) fn holds_rows_in(page: &str, name: &str, made: &str) {
    if thorough() {
        return holds_in(page, name, made);
    }
    let page = std::fs::read_to_string(path(page)).expect("the page is there");
    let [_, there, _] = around(&page, name);
    let lines: Vec<&str> = there.lines().collect();
    assert!(
        made.lines().all(|line| lines.contains(&line)),
        "scripts/test --all with IOTAX_UPDATE_DOCS=1 updates it:\n{made}\nthere:\n{there}"
    );
}

/// Path of a page of docs.
fn path(page: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(page)
}

/// Splits a page into the text before a table, the table, and the text after it.
fn around<'a>(page: &'a str, name: &str) -> [&'a str; 3] {
    let mark = format!("<!-- simulated: {name} -->\n");
    let begin = page.find(&mark).unwrap_or_else(|| panic!("the page has no place for {name}")) + mark.len();
    let length = page[begin..].find("<!-- end -->").expect("the place has an end");
    [&page[..begin], &page[begin..][..length], &page[begin + length..]]
}
