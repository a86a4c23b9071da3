//! One-line descriptions of targets.

use super::TargetSpec;

impl TargetSpec {
    /// Describes the target on one line: its stack, background load and kernel settings.
    #[must_use]
    pub fn description(&self) -> String {
        let beside = self.neighbour.as_ref().map(|name| format!(", beside {name}")).unwrap_or_default();
        let settings = self.settings.as_ref().filter(|settings| !settings.is_empty());
        let settings = settings.map(|settings| format!(", {settings}")).unwrap_or_default();
        format!("{}{beside}{settings}", self.stack.line())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_neighbour_and_the_settings_follow_the_line() {
        let keys = "name = 't'\npath = '/dev/sdb'\nneighbour = 'n'\nsettings = { nr_requests = 8, scheduler = 'none' }";
        let target: TargetSpec = toml::from_str(keys).expect("valid");
        assert_eq!(target.description(), "/dev/sdb, beside n, scheduler=none nr_requests=8");
    }
}
