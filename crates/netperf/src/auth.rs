//! Proof that a client knows the server's token. The server sends random bytes; the client answers with an HMAC (RFC 2104, SHA-256) of these
//! bytes, the test's cookie and the test's parameters. The token itself is never sent, and an answer is valid for one test only.

use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use super::control::{Cookie, random};

/// The random bytes that the server sends to the client.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Challenge {
    nonce: [u8; 32],
}

/// The client's HMAC, which answers the challenge.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Answer {
    mac: Vec<u8>,
}

impl Challenge {
    /// Creates a challenge of fresh random bytes.
    pub(super) fn new() -> std::io::Result<Self> {
        let mut nonce = [0; 32];
        random(&mut nonce)?;
        Ok(Self { nonce })
    }

    /// Computes the answer of a client that knows the token.
    pub(super) fn answer(&self, token: &str, cookie: &Cookie, parameters: &[u8]) -> Answer {
        Answer { mac: self.mac(token, cookie, parameters).finalize().into_bytes().to_vec() }
    }

    /// Returns whether an answer proves knowledge of the token; takes the same time for right and wrong answers.
    pub(super) fn is_met(&self, answer: &Answer, token: &str, cookie: &Cookie, parameters: &[u8]) -> bool {
        self.mac(token, cookie, parameters).verify_slice(&answer.mac).is_ok()
    }

    fn mac(&self, token: &str, cookie: &Cookie, parameters: &[u8]) -> Hmac<Sha256> {
        let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(token.as_bytes())
            .unwrap_or_else(|_| unreachable!("a key of HMAC has any length"));
        for part in [b"iotax net 1".as_slice(), &self.nonce, cookie, parameters] {
            mac.update(part);
        }
        mac
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_token_for_the_same_test_will_do() {
        let challenge = Challenge::new().expect("random");
        let answer = challenge.answer("secret", &[1; 37], b"{}");
        assert!(challenge.is_met(&answer, "secret", &[1; 37], b"{}"));
        assert!(!challenge.is_met(&answer, "other", &[1; 37], b"{}"));
        assert!(!challenge.is_met(&answer, "secret", &[2; 37], b"{}"));
        assert!(!challenge.is_met(&answer, "secret", &[1; 37], b"{\"time\":9}"));
        assert!(!challenge.is_met(&Answer { mac: Vec::new() }, "secret", &[1; 37], b"{}"));
        assert!(!Challenge::new().expect("random").is_met(&answer, "secret", &[1; 37], b"{}"));
    }
}
