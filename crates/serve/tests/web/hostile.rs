//! Tests of malicious requests.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use iotax_testkit::thorough;

use crate::server::{HOSTILE, Server};

/// Pseudo-random numbers, the same in each test run.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("31 bits") % below
    }

    fn of<'a>(&mut self, list: &[&'a str]) -> &'a str {
        list[self.next(list.len())]
    }
}

const METHODS: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH", "G\u{0}T"];
const PATHS: [&str; 29] = [
    "/fleets",
    "/fleets/",
    "/api/v1/fleets/",
    "/runs",
    "/runs/",
    "/compare",
    "/trends",
    "/machine",
    "/machines",
    "/plans",
    "/plans/begin",
    "/plans/cancel",
    "/login",
    "/logout",
    "/api/v1/runs",
    "/api/v1/runs/",
    "/api/v1/compare",
    "/api/v1/history",
    "/api/v1/openapi.json",
    "/api/v1/machines",
    "/static/",
    "/metrics",
    "/",
    "//",
    "/\\",
    "/.",
    "*",
    "http://attacker.example/runs",
    "",
];
const TAILS: [&str; 24] = [
    "../../../../etc/passwd",
    "..%2f..%2f..%2fetc%2fpasswd",
    "%2e%2e/%2e%2e/etc/shadow",
    "..\\..\\windows",
    "%00",
    "%c0%ae%c0%ae/",
    "%ff%fe",
    "1",
    "-1",
    "0",
    "99999999999999999999999999",
    "9223372036854775807",
    "1e9",
    "NaN",
    "1;DROP TABLE run",
    "1'+OR+'1'='1",
    "1/notes",
    "4/events",
    "1/plan.toml",
    "%3Cscript%3Ealert(1)%3C/script%3E",
    "{{7*7}}",
    "${jndi:ldap://x}",
    "site.css/..",
    "%E2%80%AE",
];
const QUERIES: [&str; 24] = [
    "",
    "?",
    "?&&&&=",
    "?text=%3Cscript%3Ealert(1)%3C/script%3E",
    "?text=%ff",
    "?text=%00",
    "?state=%27",
    "?limit=-1",
    "?limit=99999999999",
    "?before=-9223372036854775808",
    "?before=9223372036854775807",
    "?machine=%3Cimg%20src=x%20onerror=alert(1)%3E",
    "?name=%3Cb%3E",
    "?runs=1,1",
    "?runs=,,,",
    "?runs=1:%3Cscript%3E,2",
    "?runs=9223372036854775807,1",
    "?runs=1,2&margin=NaN%25",
    "?runs=1,2&baseline=%3Cb%3E",
    "?run=1&run=%0d%0aSet-Cookie:x=y",
    "?metric=%3Cscript%3E",
    "?plan=%22%3E%3Cscript%3E",
    "?tag=a&tag=a&tag=%27%22",
    "?limit=1000&limit=x",
];
const HEADERS: [&str; 16] = [
    "",
    "Content-Length: -1\r\n",
    "Content-Length: 99999999999999999999\r\n",
    "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
    "X: \u{1}\u{2}\r\n",
    "Cookie: iotax_session=\"><script>\r\n",
    "Authorization: Bearer \u{e9}\r\n",
    "Authorization: Basic Og==\r\n",
    "Content-Type: application/json\r\n",
    "Content-Type: multipart/form-data; boundary=x\r\n",
    "Expect: 100-continue\r\n",
    "Range: bytes=0-\r\n",
    "Accept-Encoding: gzip, br, \u{0}\r\n",
    "Upgrade: h2c\r\nConnection: Upgrade\r\n",
    "X-Forwarded-Host: attacker.example\r\n",
    "Origin: null\r\n",
];

/// Number of concurrent requests: the server waits 10 s for a missing body.
const AT_ONCE: usize = 32;

/// Builds a random request.
fn request(numbers: &mut Numbers) -> Vec<u8> {
    let (method, base_path, tail) = (numbers.of(&METHODS), numbers.of(&PATHS), numbers.of(&TAILS));
    let (query, headers) = (numbers.of(&QUERIES), numbers.of(&HEADERS));
    let mut path = format!("{base_path}{}{query}", if numbers.next(2) == 0 { tail } else { "" });
    let mut headers = headers.to_owned();
    let body = match numbers.next(4) {
        0 => "form_token=x&run=1&tags=<script>&text=\u{202e}".to_owned(),
        1 => "{\"tags\":[\"\u{7}\"]".to_owned(),
        _ => String::new(),
    };
    // Now and then more than anybody needs.
    match numbers.next(50) {
        0 => path += &"a".repeat(20_000),
        1 => headers += &["X-Long: ", &"b".repeat(500_000), "\r\n"].concat(),
        2 => headers += &"X-Many: c\r\n".repeat(500),
        _ => {}
    }
    let length = if body.is_empty() || headers.contains("Content-Length") {
        String::new()
    } else {
        format!("Content-Length: {}\r\n", body.len())
    };
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\n{headers}{length}Connection: close\r\n\r\n{body}"
    );
    let mut request = request.into_bytes();
    if numbers.next(20) == 0 {
        let at = numbers.next(request.len());
        request[at] = 0xff;
    }
    request
}

/// Sends a request and checks the response. Returns whether there was one.
fn is_answered(server: &Server, round: usize, request: &[u8]) -> bool {
    let answer = server.raw(request);
    let sent = String::from_utf8_lossy(&request[..request.len().min(300)]).into_owned();
    assert!(answer.status < 500, "{round}: {sent}\n{}\n{}", answer.head, answer.body);
    assert!(!answer.head.to_lowercase().contains("\nset-cookie: x=y"), "{sent}");
    assert!(!answer.body.contains("root:x:0"), "{sent}");
    let is_page = answer.header("content-type").is_some_and(|kind| kind.starts_with("text/html"));
    for markup in ["<script>alert", "<script>\"", "<img"] {
        assert!(!is_page || !answer.body.contains(markup), "{round}: {sent} gives {markup}");
    }
    answer.status > 0
}

#[test]
fn hostile_requests_break_nothing() {
    let server = Server::start();
    let mut numbers = Numbers(20_261_125);
    let rounds = if thorough() { 5000 } else { 300 };
    let requests: Vec<Vec<u8>> = (0..rounds).map(|_| request(&mut numbers)).collect();
    let (next, answered) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let round = next.fetch_add(1, Ordering::Relaxed);
                    let Some(request) = requests.get(round) else { break };
                    if is_answered(&server, round, request) {
                        answered.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let answered = answered.into_inner();
    assert!(answered > rounds / 10 * 9, "{answered} were answered");
    assert_eq!(server.get("/runs/1").status, 200, "it lives");
    assert_eq!(server.store().notes(1).expect("read").text, "", "and nothing was changed");
}

#[test]
fn bodies_have_a_limit() {
    let server = Server::start();
    let form = server.notes_form(1);
    let long = format!("{form}&tags=&text={}", "x".repeat(1 << 20));
    assert_eq!(server.post("/runs/1/notes", "", &long).status, 413);
    let long = format!("{form}&tags=&text={}", "x".repeat(100_000));
    assert_eq!(server.post("/runs/1/notes", "", &long).status, 400);
    assert_eq!(server.store().notes(1).expect("read").text, "");
}

#[test]
fn what_is_sent_comes_back_as_text() {
    let server = Server::start();
    let encoded: String = HOSTILE.bytes().map(|byte| format!("%{byte:02X}")).collect::<Vec<_>>().concat();
    for path in [
        "/runs?text=",
        "/runs?machine=",
        "/runs?tag=",
        "/machine?name=",
        "/compare?runs=",
        "/compare?runs=1,2&margin=",
        "/trends?plan=",
        "/trends?metric=",
        "/runs?state=",
    ] {
        let answer = server.get(&format!("{path}{encoded}"));
        assert!(answer.status < 500, "{path}");
        assert!(
            !answer.body.contains("<script>alert") && !answer.body.contains("<img"),
            "{path}: {}",
            answer.body
        );
    }
}
