//! Checks that all guests of a run fit into the host's memory at the same time.

use iotax_model::Plan;
use iotax_model::units::{Bytes, human};

use crate::refusal::Refusal;

/// Returns the bytes of the available memory that must stay free: 10%, at least 1 GiB.
fn reserve(available: u64) -> u64 {
    (available / 10).max(1 << 30)
}

/// Rejects a plan whose guests need more than `available` memory minus the reserve.
pub fn check(plan: &Plan, available: Bytes) -> Result<(), Refusal> {
    let guests = plan.everything().filter_map(|target| target.guest());
    let (count, need) = guests.fold((0, 0_u64), |(count, need), guest| {
        let all = guest.memory.0.saturating_mul(u64::from(guest.count));
        (count + guest.count, need.saturating_add(all))
    });
    let keep = reserve(available.0);
    if count == 0 || need.saturating_add(keep) <= available.0 {
        return Ok(());
    }
    Err(Refusal::environment(format!(
        "the guests ({count} in all) run side by side and take {}; {} of memory are available, of which 10% or 1 GiB ({}) stay free. Give \
         the guests less memory (memory = \"256m\" is the least), or measure fewer of them in one run",
        human::bytes(need),
        human::bytes(available.0),
        human::bytes(keep)
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guests_that_do_not_fit_side_by_side_are_refused_with_the_figures() {
        let plan = |guests: &str| {
            let target =
                format!("[[target]]\nname = 'a'\nfile = {{ dir = '/srv' }}\nguest = {{ {guests} }}\n");
            Plan::from_toml(&format!(
                "{target}[[target]]\nname = 'b'\npath = '/x'\n[[workload]]\nrw = 'read'"
            ))
            .expect("a plan")
        };
        let three = plan("memory = '1GiB', count = 3");
        assert!(check(&three, Bytes(4 << 30)).is_ok(), "to the last byte");
        let refusal = check(&three, Bytes((4 << 30) - 1)).expect_err("too little").to_string();
        for words in
            ["(3 in all)", "take 3.00 GiB", "4.00 GiB of memory", "(1.00 GiB) stay free", "less memory"]
        {
            assert!(refusal.contains(words), "{refusal}");
        }
        assert!(check(&plan("memory = '18GiB'"), Bytes(20 << 30)).is_ok());
        assert!(check(&plan("memory = '19GiB'"), Bytes(20 << 30)).is_err(), "10% of 20 GiB stay free");
        let none = Plan::from_toml("[[target]]\nname = 'b'\npath = '/x'\n[[workload]]\nrw = 'read'")
            .expect("a plan");
        assert!(check(&none, Bytes(0)).is_ok());
    }
}
