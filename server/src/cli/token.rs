//! `oncebox token`. Tests: `tests/serve/api/access.rs`.

use std::io::{IsTerminal as _, Read as _, Write as _};
use std::process::ExitCode;

use anyhow::{Context as _, anyhow};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SecureRandom as _;

use super::{CommandError, Exit};
use crate::api::access::{ApiRole, hash};
use crate::operator::show::hex;

/// Arguments of `oncebox token`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Token name, recorded in the audit log
    name: String,
    /// Role; repeatable
    #[arg(long = "role", value_name = "ROLE", value_parser = role, default_value = "viewer")]
    roles: Vec<ApiRole>,
    /// Read the token from standard input instead of creating one
    #[arg(long)]
    stdin: bool,
}

fn role(text: &str) -> Result<ApiRole, String> {
    let all = ApiRole::ALL.map(ApiRole::as_str).join(", ");
    ApiRole::ALL.into_iter().find(|role| role.as_str() == text).ok_or_else(|| format!("use one of {all}"))
}

pub(super) fn run(args: &Args) -> Result<ExitCode, CommandError> {
    let good = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if args.name.is_empty() || !args.name.chars().all(good) {
        return Err(Exit::Usage.with(anyhow!("a token name consists of letters, digits, `-` and `_`")));
    }
    let token = if args.stdin { read()? } else { fresh()? };
    let digits = hex(&hash(token.as_bytes()));
    let roles: Vec<String> = args.roles.iter().map(|role| format!("\"{}\"", role.as_str())).collect();
    let (name, roles) = (&args.name, roles.join(", "));
    if !args.stdin {
        // On standard error, so that a redirect writes only the hash to a file.
        eprintln!("The token is shown only once; send it as `Authorization: Bearer …`:\n\n  {token}\n");
        if std::io::stdout().is_terminal() {
            eprintln!("For oncebox.toml, which needs only the hash:\n");
        }
    }
    // Starts with a line break, in case the file does not end with one.
    let table = format!("\n[api.token.{name}]\nhash = \"sha256:{digits}\"\nroles = [{roles}]\n");
    std::io::stdout().write_all(table.as_bytes()).context("cannot write to standard output")?;
    Ok(ExitCode::SUCCESS)
}

/// Returns a token of 256 random bits: long enough that a plain hash protects it.
fn fresh() -> Result<String, CommandError> {
    let mut bytes = [0; 32];
    let random = ring::rand::SystemRandom::new();
    random
        .fill(&mut bytes)
        .map_err(|_| Exit::Start.with(anyhow!("the system provides no random numbers")))?;
    Ok(format!("obx_{}", URL_SAFE_NO_PAD.encode(bytes)))
}

fn read() -> Result<String, CommandError> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).context("cannot read standard input")?;
    let token = text.trim_end_matches(['\r', '\n']);
    let sendable = token.bytes().all(|byte| byte.is_ascii_graphic());
    if token.len() < 32 || !sendable {
        let what = "a token needs at least 32 characters without spaces: an attacker can guess a short one from its hash";
        return Err(Exit::Usage.with(anyhow!(what)));
    }
    Ok(token.to_owned())
}
