//! `girih db`: what tuning has found.

use super::Outcome;
use super::args::DbCommand;
use girih::tune::run::one_line;
use girih::tune::store;
use girih::{Error, Result};
use girih_autotune::database::{Database, Entry};
use girih_runtime::cache::digest;
use std::path::Path;

pub fn db(command: &DbCommand) -> Result<Outcome> {
    let database = store::database();
    let mut notes = Vec::new();
    match command {
        DbCommand::List { op, json } => list(&entries(&database, op, &mut notes), op.as_deref(), *json),
        DbCommand::Show { name } => show(&database.all(&mut notes), name)?,
        DbCommand::Export { folder, op } => export(&entries(&database, op, &mut notes), folder)?,
        DbCommand::Merge { folders } => merge(&database, folders, &mut notes)?,
        DbCommand::Prune { op, all } => prune(&database, op.as_deref(), *all)?,
    }
    notes.iter().for_each(|n| eprintln!("note: {n}"));
    Ok(Outcome::Right)
}

fn entries(database: &Database, op: &Option<String>, notes: &mut Vec<String>) -> Vec<Entry> {
    let mut all = database.all(notes);
    all.retain(|e| op.as_ref().is_none_or(|op| e.key.op == *op));
    all
}

fn name(e: &Entry) -> String {
    digest(&e.key.bytes())
}

fn json(e: &Entry) -> serde_json::Value {
    serde_json::json!({ "name": name(e), "key": e.key, "record": e.record, "file": e.path })
}

fn list(all: &[Entry], op: Option<&str>, as_json: bool) {
    for e in all {
        let r = &e.record;
        let line = match as_json {
            true => json(e).to_string(),
            false => format!(
                "{} {:20} {:24} {:>10.2} us{}  {}  [{}]",
                &name(e)[..12],
                e.key.op,
                e.key.shape(),
                r.us,
                if r.default_us > 0.0 { format!(" (untuned {:.2})", r.default_us) } else { String::new() },
                one_line(&r.configuration),
                e.key.device
            ),
        };
        super::print(&(line + "\n"));
    }
    if all.is_empty() && !as_json {
        super::print(&match op {
            Some(op) => format!("nothing is tuned for {op}: girih db list shows all that is\n"),
            None => "nothing is tuned yet: girih tune FILE --op NAME --dim …\n".into(),
        });
    }
}

fn show(all: &[Entry], wanted: &str) -> Result<()> {
    let found: Vec<&Entry> = all.iter().filter(|e| name(e).starts_with(wanted)).collect();
    match found[..] {
        [one] => {
            let text =
                serde_json::to_string_pretty(&json(one)).map_err(|e| Error::argument("db", e.to_string()))?;
            super::print(&(text + "\n"));
            Ok(())
        }
        [] => Err(Error::argument(wanted, "there is no such record: girih db list prints their names")),
        _ => Err(Error::argument(wanted, format!("{} records begin so: write more of it", found.len()))),
    }
}

fn export(all: &[Entry], folder: &Path) -> Result<()> {
    let to = Database::new(Some(folder.to_path_buf()), Vec::new());
    for e in all {
        to.put(&e.key, &e.record).map_err(|e| Error::file(folder, format!("cannot be written: {e}")))?;
    }
    super::print(&format!("{} records in {}\n", all.len(), folder.display()));
    Ok(())
}

fn merge(database: &Database, folders: &[std::path::PathBuf], notes: &mut Vec<String>) -> Result<()> {
    let Some(own) = database.own() else {
        return Err(Error::argument("db", "there is no store of one's own to merge into: see girih doctor"));
    };
    for folder in folders {
        if !folder.is_dir() {
            return Err(Error::file(folder, "is no folder with records"));
        }
        // A whole cache has its records in a folder of its own.
        let inner = folder.join("tuned");
        let from = if inner.is_dir() { inner } else { folder.clone() };
        let changed =
            database.merge(&from, notes).map_err(|e| Error::file(own, format!("cannot be written: {e}")))?;
        super::print(&format!(
            "{}: {} taken, {} known as good\n",
            folder.display(),
            changed.taken,
            changed.kept
        ));
    }
    Ok(())
}

fn prune(database: &Database, op: Option<&str>, all: bool) -> Result<()> {
    let version = format!("girih {}", env!("CARGO_PKG_VERSION"));
    let drop = |e: &Entry| all || op == Some(e.key.op.as_str()) || !e.key.compiler.starts_with(&version);
    let changed = database.prune(&drop).map_err(|e| Error::argument("db", e.to_string()))?;
    super::print(&format!(
        "{} removed, {} damaged removed, {} kept\n",
        changed.taken, changed.damaged, changed.kept
    ));
    Ok(())
}
