//! Tests of access for reading and for changes, and of the content security policy.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use iotax_serve::Launch;
use rustix::net::{self, AddressFamily, SocketType};

use crate::server::{Server, hidden};

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

#[test]
fn every_answer_has_the_headers_that_keep_it_safe() {
    let server = Server::start();
    for path in ["/runs", "/runs/1", "/nothing", "/api/v1/runs", "/static/site.css", "/metrics", "/login"] {
        let answer = server.get(path);
        let policy =
            answer.header("content-security-policy").unwrap_or_else(|| panic!("{path}: {}", answer.head));
        for part in [
            "default-src 'none'",
            "script-src 'self';",
            "frame-ancestors 'none'",
            "base-uri 'none'",
            "form-action 'self'",
        ] {
            assert!(policy.contains(part), "{path}: {policy}");
        }
        assert_eq!(policy.contains("unsafe-inline"), path == "/runs/1", "{path}: charts alone need styles");
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{path}");
        assert_eq!(answer.header("x-frame-options"), Some("DENY"), "{path}");
        assert_eq!(answer.header("referrer-policy"), Some("same-origin"), "{path}");
        assert!(answer.header("cache-control").is_some() && answer.header("server").is_none(), "{path}");
        // The only scripts without an address are data.
        if answer.header("content-type").is_none_or(|kind| !kind.starts_with("text/html")) {
            continue;
        }
        let inline = answer.body.matches("<script").count() - answer.body.matches("<script src=").count();
        assert_eq!(inline, answer.body.matches("<script type=\"application/json\">").count(), "{path}");
    }
}

#[test]
fn names_that_nobody_gave_the_server_are_refused() {
    let server = Server::with(|config| config.hosts = vec!["iotax.example".into()]);
    for (host, status) in [
        ("localhost:8080", 200),
        ("127.0.0.1", 200),
        ("[::1]:80", 200),
        ("iotax.example", 200),
        ("attacker.example", 421),
        ("127.0.0.1.attacker.example", 421),
        ("", 421),
    ] {
        assert_eq!(server.send("GET", "/runs", &format!("Host: {host}\r\n"), "").status, status, "{host:?}");
    }
    assert_eq!(server.raw(b"GET /runs HTTP/1.0\r\n\r\n").status, 400);
}

#[test]
fn a_token_is_needed_where_there_is_one() {
    let server = Server::with(|config| config.token = Some(TOKEN.into()));
    let page = server.get("/runs");
    assert_eq!((page.status, page.header("location")), (303, Some("/login?to=%2Fruns")));
    let api = server.get("/api/v1/runs");
    assert_eq!((api.status, api.header("www-authenticate")), (401, Some("Bearer realm=\"iotax\"")));
    assert_eq!(server.get("/metrics").status, 401);
    assert_eq!(server.send("GET", "/metrics", &format!("Authorization: Bearer {TOKEN}\r\n"), "").status, 200);
    assert_eq!(server.get(&format!("/runs?token={TOKEN}")).status, 303, "never in an address");
    assert_eq!(server.post("/login", "", "token=0123456789abcdef").status, 403);

    let login = server.post("/login", "", &format!("token={TOKEN}"));
    let cookie = login.header("set-cookie").expect("a cookie");
    assert!(
        cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict") && !cookie.contains(TOKEN),
        "{cookie}"
    );
    let cookie = format!("Cookie: {}\r\n", cookie.split(';').next().expect("a pair"));
    let page = server.send("GET", "/runs", &cookie, "");
    assert_eq!(page.status, 200);
    assert!(page.body.contains("Log out"));
}

#[test]
fn a_login_leads_back_to_the_page_that_was_asked_for_and_nowhere_else() {
    let server = Server::with(|config| {
        config.token = Some(TOKEN.into());
        config.base = "/iotax".into();
    });
    let asked = server.get("/iotax/runs?text=a%26b");
    let login_path = asked.header("location").expect("a place").to_owned();
    assert_eq!(login_path, "/iotax/login?to=%2Fruns%3Ftext%3Da%2526b");
    let page = server.get(&login_path).body;
    assert_eq!(hidden(&page, "to"), "/runs?text=a%26b");
    let lands = |to: &str| {
        let login = server.post("/iotax/login", "", &format!("token={TOKEN}&to={to}"));
        assert_eq!(login.status, 303, "{}", login.body);
        login.header("location").expect("a place").to_owned()
    };
    assert_eq!(lands("%2Fruns%3Ftext%3Da%2526b"), "/iotax/runs?text=a%26b");
    for to in [
        "",
        "%2F%2Fevil.example",
        "%2F%5Cevil.example",
        "https%3A%2F%2Fevil.example",
        "%2F%09%2Fevil",
        "runs",
    ] {
        assert_eq!(lands(to), "/iotax/runs", "{to}");
    }
    let hostile = server.get("/iotax/login?to=%22%3E%3Cscript%3Ealert(1)%3C/script%3E");
    assert!(!hostile.body.contains("<script>alert"), "{}", hostile.body);
}

#[test]
fn what_another_site_sends_is_refused() {
    let server = Server::start();
    let form = format!("{}&tags=x&text=", server.notes_form(1));
    for headers in [
        "Origin: https://attacker.example\r\n",
        "Sec-Fetch-Site: cross-site\r\n",
        "Sec-Fetch-Site: same-site\r\n",
        "Origin: null\r\n",
    ] {
        assert_eq!(server.post("/runs/1/notes", headers, &form).status, 403, "{headers}");
    }
    for forged in ["form_token=&seen=&tags=x&text=", "form_token=00&seen=&tags=x&text=", "tags=x&text="] {
        assert!(matches!(server.post("/runs/1/notes", "", forged).status, 403 | 422), "{forged}");
    }
    assert!(server.store().notes(1).expect("read").tags.is_empty());
    let ours = format!("Origin: http://{}\r\nSec-Fetch-Site: same-origin\r\n", server.address);
    assert_eq!(server.post("/runs/1/notes", &ours, &form).status, 303);
    assert_eq!(server.send("GET", "/plans/begin", "", "").status, 405);
}

#[test]
fn for_reading_only_nothing_is_changed() {
    let server = Server::with(|config| {
        config.read_only = true;
        config.launch = Some(Launch { program: "/bin/true".into(), directories: vec![], plans: None });
    });
    assert!(!server.get("/plans").body.contains("Begin"));
    for path in ["/plans/begin", "/plans/cancel"] {
        let refused = server.post(path, "", "form_token=&run=1");
        assert!(refused.status == 403 && refused.body.contains("--read-only"), "{path}: {}", refused.body);
    }
    assert!(!server.get("/runs/1").body.contains("<textarea"));
    let put =
        server.send("PUT", "/api/v1/runs/1/notes", "Content-Type: application/json\r\n", "{\"text\":\"x\"}");
    assert_eq!(put.status, 403, "{}", put.body);
    assert_eq!(server.store().notes(1).expect("read").text, "");
}

#[test]
fn no_run_begins_where_that_is_not_allowed() {
    let server = Server::start();
    let token = server.form_token("/runs/1");
    let refused = server.post("/plans/begin", "", &format!("form_token={token}&run=1"));
    assert!(refused.status == 403 && refused.body.contains("--allow-run"), "{}", refused.body);
}

#[test]
fn a_peer_has_a_rate() {
    let server = Server::with(|config| config.rate = 2);
    let statuses: Vec<u16> = (0..40).map(|_| server.get("/healthz").status).collect();
    assert!(statuses[..20].iter().all(|status| *status == 200) && statuses.contains(&429), "{statuses:?}");
    assert_eq!(server.get("/static/site.css").status, 200, "files are cached and cost nothing");
}

#[test]
fn who_says_nothing_does_not_hold_up_others() {
    let server = Server::start();
    let mut slow: Vec<TcpStream> =
        (0..100).map(|_| TcpStream::connect(server.address).expect("connected")).collect();
    for stream in &mut slow {
        stream.write_all(b"GET /runs HTTP/1.1\r\nHost: localhost\r\nX-Slow: ").expect("sent");
    }
    let start = Instant::now();
    assert_eq!(server.get("/runs").status, 200);
    assert!(start.elapsed() < Duration::from_secs(5));
    // Clients that never end their request are disconnected.
    let stream = &mut slow[0];
    stream.set_read_timeout(Some(Duration::from_mins(1))).expect("set");
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    assert!(start.elapsed() < Duration::from_secs(50), "closed after {:?}", start.elapsed());
    assert!(!String::from_utf8_lossy(&rest).contains(" 200 "));
}

/// A connection from an address of the loopback interface.
fn from(address: [u8; 4], server: &Server) -> TcpStream {
    let socket = net::socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
    net::bind(&socket, &SocketAddr::from((address, 0))).expect("an address of the loopback interface");
    net::connect(&socket, &server.address).expect("connected");
    TcpStream::from(socket)
}

#[test]
fn clients_that_are_slow_on_purpose_lock_nobody_out() {
    let server = Server::start();
    let heads = [
        "",
        "GET /runs HTTP/1.1\r\nHost: localhost\r\nX-Slow: ",
        "POST /plans/begin HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\n\
         Content-Length: 1000\r\n\r\nf",
    ];
    for head in heads {
        let hold = |last: u8| {
            let mut stream = from([127, 0, 0, last], &server);
            let _ = stream.write_all(head.as_bytes());
            stream
        };
        let held: Vec<TcpStream> =
            (0..400_u16).map(|i| hold(u8::try_from(1 + i % 3).expect("small"))).collect();
        for last in [1, 2, 9] {
            let (start, mut stream) = (Instant::now(), from([127, 0, 0, last], &server));
            stream.set_read_timeout(Some(Duration::from_mins(1))).expect("set");
            stream
                .write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                .expect("sent");
            let mut answer = String::new();
            stream.read_to_string(&mut answer).expect("answered");
            assert!(answer.starts_with("HTTP/1.1 200 "), "{head:?}: {answer}");
            assert!(start.elapsed() < Duration::from_secs(5), "{head:?}: after {:?}", start.elapsed());
        }
        drop(held);
    }
}

#[test]
fn a_body_has_an_end_in_length_and_time() {
    let server = Server::start();
    let mut stream = from([127, 0, 0, 1], &server);
    stream.set_read_timeout(Some(Duration::from_mins(1))).expect("set");
    let head = "POST /plans/begin HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\nf";
    stream.write_all(head.as_bytes()).expect("sent");
    let (start, mut answer) = (Instant::now(), String::new());
    let _ = stream.read_to_string(&mut answer);
    assert!(answer.starts_with("HTTP/1.1 408 ") && answer.contains("longer than 10 s"), "{answer}");
    assert!(start.elapsed() < Duration::from_secs(30));
    let long = server.post("/plans/begin", "", &"x".repeat(300 << 10));
    assert!(long.status == 413 && long.body.contains("up to 256 KiB"), "{} {}", long.status, long.body);
}

/// Tests that the server of `iotax top --prometheus` applies the same access checks.
#[test]
fn metrics_alone_are_guarded_too() {
    let metrics = iotax_serve::LastMetrics::serve(([127, 0, 0, 1], 0).into()).expect("listens");
    metrics.show("iotax_up 1\n".into());
    let ask = |request: &str| {
        let mut stream = TcpStream::connect(metrics.address()).expect("connected");
        stream.set_read_timeout(Some(Duration::from_mins(1))).expect("set");
        stream.write_all(format!("{request}\r\nConnection: close\r\n\r\n").as_bytes()).expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("answered");
        answer
    };
    let slow = |_| {
        let mut stream = TcpStream::connect(metrics.address()).expect("connected");
        let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nX: ");
        stream
    };
    let held: Vec<TcpStream> = (0..300).map(slow).collect();
    let shown = ask("GET /metrics HTTP/1.1\r\nHost: localhost:9200");
    assert!(shown.starts_with("HTTP/1.1 200 ") && shown.ends_with("iotax_up 1\n"), "{shown}");
    assert!(shown.contains("text/plain; version=0.0.4"), "{shown}");
    drop(held);
    for (request, status) in [
        ("GET /metrics HTTP/1.1\r\nHost: attacker.example", 421),
        ("GET /metrics HTTP/1.0", 400),
        ("GET /other HTTP/1.1\r\nHost: 127.0.0.1", 404),
        ("POST /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0", 405),
    ] {
        let answer = ask(request);
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} "))
                || answer.starts_with(&format!("HTTP/1.0 {status} ")),
            "{request}: {answer}"
        );
        assert!(!answer.contains("iotax_up"), "{request}: {answer}");
    }
}

mod tls {
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpStream};
    use std::path::Path;
    use std::sync::Arc;

    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
    use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

    use crate::server::Server;
    use iotax_serve::{ServeError, Tls};

    /// Creates a CA, and certificates of the server, a client, and a client of another CA.
    fn make(dir: &Path) {
        let authority = |name: &str| {
            let mut params = CertificateParams::new(vec![]).expect("parameters");
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params.distinguished_name.push(rcgen::DnType::CommonName, name);
            CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("signed")
        };
        let (ours, other) = (authority("ours"), authority("other"));
        std::fs::write(dir.join("ca.pem"), ours.pem()).expect("written");
        for (name, issuer) in [("server", &ours), ("client", &ours), ("stranger", &other)] {
            let key = KeyPair::generate().expect("a key");
            let params = CertificateParams::new(vec!["localhost".to_owned()]).expect("parameters");
            let certificate = params.signed_by(&key, issuer).expect("signed");
            std::fs::write(dir.join(format!("{name}.pem")), certificate.pem()).expect("written");
            std::fs::write(dir.join(format!("{name}.key")), key.serialize_pem()).expect("written");
        }
    }

    /// Sends a request over TLS. Returns an empty answer if the server closes the connection.
    fn ask(address: SocketAddr, dir: &Path, client: Option<&str>) -> String {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(dir.join("ca.pem")).expect("PEM")).expect("an authority");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions");
        let config = config.with_root_certificates(roots);
        let config = match client {
            None => config.with_no_client_auth(),
            Some(name) => {
                let chain =
                    vec![CertificateDer::from_pem_file(dir.join(format!("{name}.pem"))).expect("PEM")];
                let key = PrivateKeyDer::from_pem_file(dir.join(format!("{name}.key"))).expect("PEM");
                config.with_client_auth_cert(chain, key).expect("a certificate")
            }
        };
        let name = ServerName::try_from("localhost").expect("a name");
        let connection = ClientConnection::new(Arc::new(config), name).expect("a connection");
        let mut stream = StreamOwned::new(connection, TcpStream::connect(address).expect("connected"));
        let _ = stream.write_all(b"GET /runs HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    #[test]
    fn a_certificate_is_as_good_as_a_token() {
        let dir = tempfile::TempDir::new().expect("a directory");
        make(dir.path());
        let file = |name: &str| dir.path().join(name);
        let server = Server::with(|config| {
            config.tls = Some(Tls {
                cert: file("server.pem"),
                key: file("server.key"),
                client_ca: Some(file("ca.pem")),
            });
            config.token = Some(super::TOKEN.into());
            config.listen = ([0, 0, 0, 0], 0).into();
        });
        let address = ([127, 0, 0, 1], server.address.port()).into();
        let answer = ask(address, dir.path(), Some("client"));
        assert!(
            answer.starts_with("HTTP/1.1 200") && answer.contains("strict-transport-security"),
            "{answer}"
        );
        assert_eq!(ask(address, dir.path(), None), "");
        assert_eq!(ask(address, dir.path(), Some("stranger")), "");
    }

    #[test]
    fn other_machines_are_let_in_only_by_a_token_or_a_certificate() {
        let mut config = None;
        let _server = Server::with(|given| config = Some(given.clone()));
        let mut config = config.expect("a configuration");
        config.listen = ([0, 0, 0, 0], 0).into();
        let refused = iotax_serve::serve(config.clone(), |_| panic!("it listens"));
        assert!(matches!(refused, Err(ServeError::Open(_))), "{refused:?}");
        config.tls = Some(Tls { cert: "/nowhere.pem".into(), key: "/nowhere.key".into(), client_ca: None });
        config.listen = ([127, 0, 0, 1], 0).into();
        let refused = iotax_serve::serve(config, |_| panic!("it listens")).expect_err("no certificate");
        assert!(refused.to_string().contains("/nowhere.pem"), "{refused}");
    }
}
