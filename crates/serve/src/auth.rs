//! Authentication: the token, the login cookie, and form tokens against cross-site request forgery.

use std::io;

use axum::http::{HeaderMap, header};
use data_encoding::HEXLOWER;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

/// Name of the login cookie.
pub(crate) const COOKIE: &str = "iotax_session";

/// Number of random bytes in a form token. They differ on each page, so that the size of the compressed page reveals nothing about the
/// token.
const NONCE: usize = 8;

/// The secrets of this server process. Logins become invalid when the process ends.
#[derive(Debug)]
pub(crate) struct Secrets {
    key: [u8; 32],
    /// MAC of the token; `None` without a token. MACs are compared in its place, so that the time of a comparison reveals nothing about the
    /// token.
    token: Option<Vec<u8>>,
}

impl Secrets {
    pub(crate) fn new(token: Option<&str>) -> io::Result<Self> {
        let mut key = [0; 32];
        random(&mut key)?;
        let token = token.map(|token| code(&key, "token", token.as_bytes()));
        Ok(Self { key, token })
    }

    /// Returns true if the server runs without a token, so that every request is admitted.
    pub(crate) fn are_open(&self) -> bool {
        self.token.is_none()
    }

    /// Returns whether `text` is the token.
    pub(crate) fn is_token(&self, text: &str) -> bool {
        self.token.as_ref().is_some_and(|token| *token == code(&self.key, "token", text.as_bytes()))
    }

    /// Returns the value of the login cookie, which is the same for all clients.
    pub(crate) fn session(&self) -> String {
        HEXLOWER.encode(&code(&self.key, "session", b""))
    }

    /// Returns whether a request is admitted: it has the token or the login cookie, or the server has no token.
    pub(crate) fn admit(&self, headers: &HeaderMap) -> bool {
        self.are_open() || self.bearer(headers) || self.has_cookie(headers)
    }

    /// Returns whether a request has the token in its Authorization header. Browsers do not add that header on their own, so such a request
    /// is not forged by another site.
    pub(crate) fn bearer(&self, headers: &HeaderMap) -> bool {
        let value = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let token = value.and_then(|value| value.split_once(' '));
        token.is_some_and(|(scheme, token)| {
            scheme.eq_ignore_ascii_case("bearer") && self.is_token(token.trim())
        })
    }

    fn has_cookie(&self, headers: &HeaderMap) -> bool {
        let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        let mut pairs =
            cookies.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
        pairs.any(|(name, value)| name == COOKIE && self.is_code("session", b"", value))
    }

    /// Creates a token for the forms of one page.
    pub(crate) fn form_token(&self) -> String {
        let mut nonce = [0; NONCE];
        // Without random bytes all pages have the same form token, which is still secret.
        let _ = random(&mut nonce);
        format!("{}{}", HEXLOWER.encode(&nonce), HEXLOWER.encode(&code(&self.key, "form", &nonce)))
    }

    /// Returns whether a form token was issued by this server process.
    pub(crate) fn is_form_token(&self, text: &str) -> bool {
        let Some((nonce, rest)) = text.split_at_checked(NONCE * 2) else { return false };
        HEXLOWER.decode(nonce.as_bytes()).is_ok_and(|nonce| self.is_code("form", &nonce, rest))
    }

    /// Computes a MAC of a form's content; equal contents have equal MACs.
    pub(crate) fn mark(&self, content: &str) -> String {
        HEXLOWER.encode(&code(&self.key, "content", content.as_bytes()))
    }

    fn is_code(&self, purpose: &str, of: &[u8], text: &str) -> bool {
        let Ok(given) = HEXLOWER.decode(text.as_bytes()) else { return false };
        mac(&self.key, purpose, of).verify_slice(&given).is_ok()
    }
}

fn mac(key: &[u8], purpose: &str, of: &[u8]) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    mac.update(purpose.as_bytes());
    mac.update(&[0]);
    mac.update(of);
    mac
}

fn code(key: &[u8], purpose: &str, of: &[u8]) -> Vec<u8> {
    mac(key, purpose, of).finalize().into_bytes().to_vec()
}

fn random(bytes: &mut [u8]) -> io::Result<()> {
    let read = rustix::rand::getrandom(&mut *bytes, rustix::rand::GetRandomFlags::empty())?;
    // The kernel gives up to 256 bytes at once.
    if read == bytes.len() { Ok(()) } else { Err(io::Error::other("the kernel gave too few random bytes")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: header::HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, value.parse().expect("a value"))])
    }

    #[test]
    fn the_token_or_a_login_is_admitted_and_nothing_else() {
        let secrets = Secrets::new(Some("open sesame")).expect("random bytes");
        let bearer = |token: &str| secrets.admit(&headers(header::AUTHORIZATION, &format!("Bearer {token}")));
        assert!(bearer("open sesame"));
        assert!(!bearer("open sesam") && !bearer("open sesame!") && !bearer(""));
        let cookie = |value: &str| secrets.admit(&headers(header::COOKIE, value));
        assert!(cookie(&format!("a=b; {COOKIE}={}", secrets.session())));
        assert!(!cookie(&format!("{COOKIE}={}", secrets.form_token())) && !cookie(&format!("{COOKIE}=")));
        let other = Secrets::new(Some("open sesame")).expect("random bytes");
        assert!(!cookie(&format!("{COOKIE}={}", other.session())), "another process's login");
        assert!(!secrets.admit(&HeaderMap::new()));
    }

    #[test]
    fn without_a_token_everybody_is_admitted() {
        let secrets = Secrets::new(None).expect("random bytes");
        assert!(secrets.admit(&HeaderMap::new()) && !secrets.is_token(""));
    }

    #[test]
    fn a_form_token_is_good_for_this_server_and_never_the_same() {
        let secrets = Secrets::new(None).expect("random bytes");
        let (one, other) = (secrets.form_token(), secrets.form_token());
        assert!(one != other && secrets.is_form_token(&one) && secrets.is_form_token(&other));
        assert!(
            !secrets.is_form_token("")
                && !secrets.is_form_token("\u{e4}\u{f6}")
                && !secrets.is_form_token(&one[2..])
        );
        assert!(!Secrets::new(None).expect("random bytes").is_form_token(&one));
    }
}
