//! Tests of TLS, users and permissions.

use std::fs;
use std::path::Path;

use iotax_fleet::nats::{Agent, AgentName, NatsError, NatsHub, NatsOperator};
use iotax_testkit::nats::NatsServer;
use iotax_testkit::require;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, SanType};

use super::double::{Double, begin, parts, receive};

/// A CA, and certificates of a server and a client signed by it.
fn certificates(directory: &Path) {
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    fs::write(directory.join("ca.pem"), authority.pem()).unwrap();
    for name in ["server", "client"] {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["localhost".into()]).unwrap();
        params.subject_alt_names.push(SanType::IpAddress(std::net::Ipv4Addr::LOCALHOST.into()));
        let certificate = params.signed_by(&key, &authority).unwrap();
        fs::write(directory.join(format!("{name}.pem")), certificate.pem()).unwrap();
        fs::write(directory.join(format!("{name}.key")), key.serialize_pem()).unwrap();
    }
}

#[test]
fn certificates_of_both_ends_are_checked() {
    require!(program "nats-server");
    let server = NatsServer::start_with(|directory| {
        certificates(directory);
        let file = |name: &str| directory.join(name).display().to_string();
        format!(
            "tls {{ cert_file: {:?}, key_file: {:?}, ca_file: {:?}, verify: true }}\n",
            file("server.pem"),
            file("server.key"),
            file("ca.pem")
        )
    });
    let file = |name: &str| server.file(name).display().to_string();
    let right = format!(
        "tls://{}?ca={}&cert={}&key={}",
        server.host(),
        file("ca.pem"),
        file("client.pem"),
        file("client.key")
    );
    let _one = Double::start(&right, "one", 3);
    let mut hub = super::double::hub(&format!("{right}&expect=1&wait=30s"), "f1");
    begin(&mut hub);
    receive(&mut hub, |all| parts(all) == 3);
    for wrong in [
        format!("tls://{}?ca={}", server.host(), file("ca.pem")),
        format!("tls://{}?cert={}&key={}", server.host(), file("client.pem"), file("client.key")),
    ] {
        let error = NatsOperator::connect(&wrong.parse().unwrap()).unwrap_err();
        assert!(matches!(error, NatsError::Connect { .. }), "{wrong}: {error}");
    }
    let missing = format!("tls://{}?ca=/nowhere.pem", server.host()).parse().unwrap();
    assert!(NatsOperator::connect(&missing).unwrap_err().to_string().starts_with("/nowhere.pem: "));
}

/// The permissions listed in docs/fleet-nats.md.
fn users(_: &Path) -> String {
    let page = include_str!("../../../../docs/fleet-nats.md");
    let begin = page.find("authorization {").expect("the example has users");
    let end = begin + page[begin..].find("```").expect("it ends");
    page[begin..end].to_owned()
}

#[test]
fn the_users_of_the_documentation_can_do_their_work_and_nothing_else() {
    require!(program "nats-server");
    let server = NatsServer::start_with(users);
    let as_user = |user: &str| {
        let file = server.file(&format!("{user}.password"));
        fs::write(&file, format!("{user}-secret\n")).unwrap();
        format!("{}?user={user}&password-file={}", server.url(), file.display())
    };
    let (coordinator, member) = (as_user("coordinator"), as_user("member"));
    let _one = Double::start(&member, "host-1", 3);
    let mut hub = super::double::hub(&format!("{coordinator}&expect=1&wait=30s"), "f1");
    begin(&mut hub);
    receive(&mut hub, |all| parts(all) == 3);
    // A member cannot lead.
    let error = NatsHub::open(&format!("{member}&wait=1s").parse().unwrap(), "f2", "1.0", None).unwrap_err();
    assert!(matches!(error, NatsError::Missing { found: 0, .. }), "{error}");
    let who = AgentName { name: "x".into(), group: None, version: "1.0".into() };
    for nobody in [server.url(), as_user("nobody")] {
        let error = Agent::enlist(&nobody.parse().unwrap(), &who).unwrap_err();
        assert!(error.to_string().contains("authorization"), "{error}");
    }
}
