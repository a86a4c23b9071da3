//! The two ends over a real nats-server.

mod nats {
    pub(crate) mod double;
    mod failures;
    mod login;
    mod work;
}
