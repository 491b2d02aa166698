//! Reads figures that oncefs prints as JSON, by name.

use serde_json::Value;

use crate::failure::{During, Failure, Result};

/// One answer of `oncefs stats --json` or `oncefs dedup --status --json`.
pub struct Figures(Value);

impl Figures {
    /// Parses the output of oncefs.
    pub fn parse(text: &str) -> Result<Figures> {
        serde_json::from_str(text).map(Figures).during(|| "cannot parse the JSON that oncefs printed")
    }

    /// A number in one of the groups of `oncefs stats`.
    pub fn number(&self, group: &str, name: &str) -> Result<u64> {
        let found = self.0.get(group).and_then(|group| group.get(name)).and_then(Value::as_u64);
        found.ok_or_else(|| Failure::new(format!("the output of oncefs has no {group}.{name}")))
    }

    /// A setting of `oncefs stats` that is a number.
    pub fn setting(&self, name: &str) -> Result<f64> {
        let found = self.0.get("settings").and_then(|settings| settings.get(name)).and_then(Value::as_f64);
        found.ok_or_else(|| Failure::new(format!("the output of oncefs has no number settings.{name}")))
    }

    /// A number at a path of names.
    pub fn number_at(&self, path: &[&str]) -> Result<u64> {
        self.at(path)
            .and_then(Value::as_u64)
            .ok_or_else(|| Failure::new(format!("the output of oncefs has no {path:?}")))
    }

    /// A number with decimals at a path of names.
    pub fn real_at(&self, path: &[&str]) -> Result<f64> {
        self.at(path)
            .and_then(Value::as_f64)
            .ok_or_else(|| Failure::new(format!("the output of oncefs has no {path:?}")))
    }

    /// Whether something at a path of names is so.
    pub fn is_at(&self, path: &[&str]) -> Result<bool> {
        self.at(path)
            .and_then(Value::as_bool)
            .ok_or_else(|| Failure::new(format!("the output of oncefs has no {path:?}")))
    }

    /// A list of numbers at a path of names.
    pub fn numbers_at(&self, path: &[&str]) -> Result<Vec<u64>> {
        let list = self.at(path).and_then(Value::as_array);
        let numbers = list.and_then(|list| list.iter().map(Value::as_u64).collect());
        numbers.ok_or_else(|| Failure::new(format!("the output of oncefs has no list {path:?}")))
    }

    fn at(&self, path: &[&str]) -> Option<&Value> {
        path.iter().try_fold(&self.0, |value, name| value.get(name))
    }

    /// A share of `oncefs dedup --status`, in percent.
    pub fn percent(&self, name: &str) -> Result<f64> {
        let found = self.0.get(name).and_then(Value::as_f64);
        found.ok_or_else(|| Failure::new(format!("the output of oncefs has no {name}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_found_by_group_and_name_and_its_absence_is_named() {
        let figures = Figures::parse(
            r#"{"space": {"stored_bytes": 7}, "inline_percent": 30.5, "settings": {"battery_percent_min": 20}}"#,
        )
        .unwrap();
        assert_eq!(figures.number("space", "stored_bytes").unwrap(), 7);
        assert_eq!(figures.percent("inline_percent").unwrap(), 30.5);
        assert_eq!(figures.setting("battery_percent_min").unwrap(), 20.0);
        assert!(figures.number("space", "data_bytes").unwrap_err().to_string().contains("space.data_bytes"));
    }

    #[test]
    fn a_figure_is_found_by_its_path() {
        let text = r#"{"device": {"read_sizes": {"count": 3, "classes": [1, 0, 2]}, "blocks": 5.8, "measured": true}}"#;
        let figures = Figures::parse(text).unwrap();
        assert_eq!(figures.real_at(&["device", "blocks"]).unwrap(), 5.8);
        assert!(figures.is_at(&["device", "measured"]).unwrap() && figures.is_at(&["device", "blocks"]).is_err());
        assert_eq!(figures.number_at(&["device", "read_sizes", "count"]).unwrap(), 3);
        assert_eq!(figures.numbers_at(&["device", "read_sizes", "classes"]).unwrap(), [1, 0, 2]);
        assert!(figures.number_at(&["device", "sizes"]).is_err() && figures.numbers_at(&["device"]).is_err());
    }
}
