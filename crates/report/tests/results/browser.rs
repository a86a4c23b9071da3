//! Tests of the HTML report in a real browser.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use iotax_analysis::compare::{self, Account};
use iotax_analysis::{Metric, judge};
use iotax_model::Run;
use iotax_report::html;
use tempfile::TempDir;

use crate::trend;
use iotax_testkit::runs::observed::{both_ladders, crowd};
use iotax_testkit::runs::{bench, ladder, large};

/// Generous timeout, so that a hanging browser does not hang the tests.
const PATIENCE: Duration = Duration::from_mins(2);

/// The size limit of a report of 500 measurements, in bytes.
const LARGEST: usize = 6 << 20;

/// The longest time until the page is usable, as a multiple of that of a small page.
const LATER: f64 = 2.5;

fn chromium() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let found = std::env::split_paths(&path)
        .flat_map(|dir| ["chromium", "chromium-browser", "google-chrome"].map(|name| dir.join(name)))
        .find(|file| file.is_file());
    if found.is_none() {
        iotax_testkit::require!(program "chromium");
    }
    found
}

/// The result of opening a page.
struct Shown {
    /// The messages on the console.
    console: Vec<String>,
    /// The browser's output: a picture, or the document after its scripts ran.
    output: Vec<u8>,
}

impl Shown {
    fn document(self) -> String {
        assert_eq!(self.console, Vec::<String>::new());
        String::from_utf8(self.output).expect("text")
    }
}

/// Opens a page with `fragment` appended to its address. Returns its document, or a screenshot.
fn open(browser: &Path, page: &str, fragment: &str, as_picture: bool) -> Shown {
    let dir = TempDir::new().expect("temporary directory");
    let (file, picture) = (dir.path().join("page.html"), dir.path().join("page.png"));
    std::fs::write(&file, page).expect("written");
    let what =
        if as_picture { format!("--screenshot={}", picture.display()) } else { "--dump-dom".to_owned() };
    let mut child = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .args([
            "--enable-logging=stderr",
            if as_picture { "--window-size=1200,4000" } else { "--window-size=1280,900" },
        ])
        .arg(format!("--user-data-dir={}", dir.path().join("profile").display()))
        .arg(what)
        .arg(format!("file://{}{fragment}", file.display()))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    let reader = |mut stream: Box<dyn Read + Send>| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            stream.read_to_end(&mut bytes).map(|_| bytes)
        })
    };
    let stdout = reader(Box::new(child.stdout.take().expect("piped")));
    let stderr = reader(Box::new(child.stderr.take().expect("piped")));
    let started = Instant::now();
    while child.try_wait().expect("waits").is_none() {
        if started.elapsed() > PATIENCE {
            child.kill().expect("running");
            child.wait().expect("ended");
            panic!("{} did not end within {PATIENCE:?}", browser.display());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let document = stdout.join().expect("reads").expect("readable");
    let log = stderr.join().expect("reads").expect("readable");
    let log = String::from_utf8_lossy(&log);
    Shown {
        console: log.lines().filter(|line| line.contains("CONSOLE")).map(str::to_owned).collect(),
        output: if as_picture { std::fs::read(&picture).unwrap_or_default() } else { document },
    }
}

fn page(run: &Run) -> String {
    html::render(run, &judge(run))
}

/// The value of an attribute that the page's script sets.
fn attribute(document: &str, name: &str) -> Option<String> {
    let rest = document.split_once(&format!("{name}=\""))?.1;
    Some(rest.split_once('"')?.0.to_owned())
}

/// Adds a script to a page, and removes the page's content security policy, which would block it.
fn with_script(page: &str, script: &str) -> String {
    let (before, rest) = page.split_once("<meta http-equiv=").expect("a policy");
    let after = rest.split_once('>').expect("its end").1;
    format!("{before}{}", after.replace("</body>", &format!("<script>{script}</script></body>")))
}

#[test]
fn it_renders_without_a_word_on_the_console() {
    let Some(browser) = chromium() else { return };
    let console = open(&browser, "<script>console.error('heard')</script>", "", true).console;
    assert!(console.iter().any(|line| line.contains("heard")), "the console can be heard: {console:?}");
    let blank = open(&browser, "<p>", "", true).output.len();
    for run in [both_ladders(), crowd(), bench()] {
        let Shown { console, output: picture } = open(&browser, &page(&run), "#all", true);
        assert_eq!(console, Vec::<String>::new());
        assert!(picture.starts_with(b"\x89PNG"));
        assert!(picture.len() > 4 * blank, "{} bytes, an empty page has {blank}", picture.len());
    }
}

#[test]
fn five_hundred_measurements_are_small_and_soon_there() {
    let Some(browser) = chromium() else { return };
    let run = large();
    assert_eq!(run.measurements.len(), 500);
    let page = page(&run);
    assert!(page.len() < LARGEST, "{} bytes", page.len());
    let ready = |page: &str| {
        let document = open(&browser, page, "", false).document();
        assert_eq!(attribute(&document, "data-trouble"), None);
        attribute(&document, "data-ready").expect("ready").parse::<u64>().expect("milliseconds")
    };
    // Other programs may run here too: the best of a few, in turn.
    let small = self::page(&bench());
    let (mut of_small, mut of_large) = (u64::MAX, u64::MAX);
    for _ in 0..3 {
        of_small = of_small.min(ready(&small));
        of_large = of_large.min(ready(&page));
    }
    println!("{} bytes, ready after {of_large} ms, a small one after {of_small}", page.len());
    assert!(
        of_large as f64 <= LATER * of_small as f64,
        "ready after {of_large} ms, a small one after {of_small}"
    );
}

#[test]
fn every_figure_becomes_a_picture() {
    let Some(browser) = chromium() else { return };
    for run in [ladder(true), both_ladders(), crowd(), bench(), large()] {
        let page = page(&run);
        let document = open(&browser, &page, "#all", false).document();
        assert_eq!(attribute(&document, "data-trouble"), None);
        let figures = page.matches("<figure ").count();
        assert!(figures >= 4);
        assert_eq!(document.matches("class=\"plot js-plotly-plot\"").count(), figures);
        // Its lines, its labels, and the hover text.
        assert_eq!(document.matches("<svg class=\"main-svg\"").count(), 3 * figures);
    }
}

/// Charts of runs with numbers of four digits, intervals that reach far, and a change near the right end.
#[test]
fn no_word_and_no_interval_of_a_history_is_cut() {
    let Some(browser) = chromium() else { return };
    let mut runs = trend::history();
    runs.iter_mut().for_each(|run| run.id += 1000);
    let (past, found) = trend::followed(&runs, &trend::question());
    let charts: String =
        found.trends.iter().zip(1..).map(|(trend, at)| html::trend(&past, trend, at).into_string()).collect();
    let accounts: Vec<Account> = runs[..4].iter().map(|run| Account::of(run, &judge(run))).collect();
    let side =
        html::history(&accounts, &compare::history(&accounts, 0.02), Metric::LATENCY_P99).into_string();
    assert_eq!(side.matches("<ul class=\"legend").count(), 1, "one legend for all charts");
    let scripts: String =
        html::SCRIPTS.iter().map(|(_, text)| ["<script>", *text, "</script>"].concat()).collect();
    let script = "const [cut, runs] = [[], []]; \
                  for (const plot of document.querySelectorAll('.plot')) { \
                    const places = [...plot.querySelectorAll('.nsewdrag')].map((part) => part.getBoundingClientRect()); \
                    const inner = { top: Math.min(...places.map((at) => at.top)), bottom: Math.max(...places.map((at) => at.bottom)), left: 0, right: 1e9 }; \
                    const within = (part, box) => { const at = part.getBoundingClientRect(); \
                      return !at.height || (at.left > box.left - 1 && at.right < box.right + 1 && at.top > box.top - 1 && at.bottom < box.bottom + 1); }; \
                    for (const text of plot.querySelectorAll('text')) if (!within(text, plot.getBoundingClientRect())) cut.push(text.textContent); \
                    for (const bar of plot.querySelectorAll('.errorbar path')) if (!within(bar, inner)) cut.push('an interval'); \
                    if (plot.querySelectorAll('.yaxislayer-above text').length < 2 * places.length) cut.push('values'); \
                    runs.push(...[...plot.querySelectorAll('.xaxislayer-above text')].map((text) => text.textContent)); } \
                  document.body.dataset.cut = cut.join('; '); document.body.dataset.runs = runs.join(' ');";
    let page = format!(
        "<!doctype html><meta charset=\"utf-8\"><style>{}</style><body>{charts}{side}{scripts}<script>{script}</script></body>",
        html::STYLE
    );
    let document = open(&browser, &page, "#all", false).document();
    assert_eq!(attribute(&document, "data-cut").as_deref(), Some(""));
    let runs = attribute(&document, "data-runs").expect("looked at");
    let numbers: Vec<u32> = runs.split(' ').filter_map(|run| run.parse().ok()).collect();
    assert!(numbers.len() > 6 && numbers.iter().all(|run| (1001..=1030).contains(run)), "{runs}");
}

#[test]
fn what_the_library_would_take_for_markup_is_text() {
    let Some(browser) = chromium() else { return };
    let evil = "<a href=\"javascript:alert(1)\">x</a><b>&amp;</b></script>";
    let mut run = ladder(false);
    let old = std::mem::replace(&mut run.plan.targets[1].name, evil.into());
    for m in run.measurements.iter_mut().filter(|m| m.target == old) {
        m.target = evil.into();
    }
    let document = open(&browser, &page(&run), "#all", false).document();
    assert_eq!(attribute(&document, "data-trouble"), None);
    assert!(!document.contains("<a href=\"javascript:") && !document.contains("<a xlink:href"));
    // In the pictures' own words.
    let in_pictures = document.match_indices("<tspan").filter(|(at, _)| {
        let text = document[*at..].split("</tspan>").next().unwrap_or_default();
        text.ends_with("&gt;x&lt;/a&gt;&lt;b&gt;&amp;amp;&lt;/b&gt;&lt;/script&gt;")
    });
    assert!(in_pictures.count() >= 3, "one ladder each of three workloads");
}

#[test]
fn a_download_says_what_the_table_says() {
    let Some(browser) = chromium() else { return };
    let mut run = bench();
    let name = "disk \"1\", new";
    run.plan.targets[0].name = name.into();
    run.plan.baseline = name.into();
    run.measurements[0].target = name.into();
    // The page may be written as soon as it is loaded, so nothing here waits.
    let script = "const Whole = Blob; \
                  window.Blob = function (parts, kind) { document.body.dataset.csv = parts.join(''); return new Whole(parts, kind); }; \
                  HTMLAnchorElement.prototype.click = function () { document.body.dataset.named = this.download; }; \
                  document.querySelector('#w1-percentiles button').click();";
    let document = open(&browser, &with_script(&page(&run), script), "", false).document();
    assert_eq!(
        attribute(&document, "data-named").as_deref(),
        Some("iotax-17-randread-4k-qd32-percentiles.csv")
    );
    let csv = attribute(&document, "data-csv").expect("downloaded").replace("&quot;", "\"");
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines[0], "target,percentile,latency_us,rounds_low_us,rounds_high_us,ios_low_us,ios_high_us");
    // One round alone has no interval over rounds.
    assert!(lines[1].starts_with("\"disk \"\"1\"\", new\",p50,131.58,,,1"), "{}", lines[1]);
    assert_eq!(lines.len(), 6, "{csv}");
}
