//! The HTML report in a real browser.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use iotax_results::judge;
use iotax_results::report::html;
use tempfile::TempDir;

use crate::observed::{both_ladders, crowd};
use crate::synthetic::bench;

/// Generous: a browser that hangs must not hang the tests.
const PATIENCE: Duration = Duration::from_mins(2);

fn chromium() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .flat_map(|dir| ["chromium", "chromium-browser", "google-chrome"].map(|name| dir.join(name)))
        .find(|file| file.is_file())
}

/// What the page says on the console, and its picture.
fn shown(browser: &Path, page: &str) -> (Vec<String>, Vec<u8>) {
    let dir = TempDir::new().expect("temporary directory");
    let (file, picture) = (dir.path().join("page.html"), dir.path().join("page.png"));
    std::fs::write(&file, page).expect("written");
    let mut child = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .args(["--enable-logging=stderr", "--window-size=1200,4000"])
        .arg(format!("--user-data-dir={}", dir.path().join("profile").display()))
        .arg(format!("--screenshot={}", picture.display()))
        .arg(format!("file://{}", file.display()))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut stderr = child.stderr.take().expect("piped");
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        stderr.read_to_end(&mut bytes).map(|_| bytes)
    });
    let started = Instant::now();
    while child.try_wait().expect("waits").is_none() {
        if started.elapsed() > PATIENCE {
            child.kill().expect("running");
            child.wait().expect("ended");
            panic!("{} did not end within {PATIENCE:?}", browser.display());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let log = String::from_utf8_lossy(&reader.join().expect("reads").expect("readable")).into_owned();
    let console = log.lines().filter(|line| line.contains("CONSOLE")).map(str::to_owned).collect();
    (console, std::fs::read(&picture).unwrap_or_default())
}

#[test]
fn it_renders_without_a_word_on_the_console() {
    let Some(browser) = chromium() else {
        eprintln!("skipped: no chromium, chromium-browser or google-chrome in PATH");
        return;
    };
    let (console, _) = shown(&browser, "<script>console.error('heard')</script>");
    assert!(console.iter().any(|line| line.contains("heard")), "the console can be heard: {console:?}");
    let blank = shown(&browser, "<p>").1.len();
    for run in [both_ladders(), crowd(), bench()] {
        let (console, picture) = shown(&browser, &html::render(&run, &judge(&run)));
        assert_eq!(console, Vec::<String>::new());
        assert!(picture.starts_with(b"\x89PNG"));
        assert!(picture.len() > 4 * blank, "{} bytes, an empty page has {blank}", picture.len());
    }
}
