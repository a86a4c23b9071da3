//! The conversation with an agent, whatever stream carries it.
