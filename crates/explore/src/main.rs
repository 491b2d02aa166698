//! The `oncefs-explore` command: explores crash states, and replays one that failed.

use std::io::Write as _;
use std::process::ExitCode;
use std::time::Instant;

use clap::{Args, Parser, Subcommand};
use oncefs_explore::explore::Explorer;
use oncefs_explore::plan::{Plan, named};
use oncefs_explore::report;
use oncefs_explore::states::StateId;
use oncefs_explore::workload;

const ABOUT_AFTER: &str = "\
Example:
  oncefs-explore run --states 1000000
  oncefs-explore replay two-levels/write-large,unlink,checkpoint --state 12.7

docs/crash-explorer.md says what is explored and what it proves. Exit code: 0 all survived, 1 something did not, 2 usage.";

#[derive(Debug, Parser)]
#[command(
    name = "oncefs-explore",
    version,
    about = "Makes every state that a crash may leave, and checks that oncefs recovers from it"
)]
#[command(after_help = ABOUT_AFTER, disable_help_subcommand = true, subcommand_required = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Explore all workloads, and seeded ones until enough states have been seen
    Run(RunArgs),
    /// Explore one workload, or one state of it
    Replay(ReplayArgs),
    /// List the directed workloads and the operations that sequences are made of
    List,
}

#[derive(Debug, Args)]
struct RunArgs {
    /// Distinct crash states to reach
    #[arg(long, default_value_t = 100_000)]
    states: usize,
    /// First seed of the seeded workloads
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Threads
    #[arg(long, default_value_t = 2)]
    threads: usize,
}

#[derive(Debug, Args)]
struct ReplayArgs {
    /// SETUP/WORKLOAD, as a failure names it: one-level/random:17, two-levels/create,punch,checkpoint
    workload: String,
    /// PREFIX.CHOICE, as a failure names it
    #[arg(long)]
    state: Option<StateId>,
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Run(arguments) => run(&arguments),
        Command::Replay(arguments) => replay(&arguments),
        Command::List => list(),
    };
    done.unwrap_or_else(|what| {
        eprintln!("oncefs-explore: {what}");
        ExitCode::from(2)
    })
}

fn run(arguments: &RunArgs) -> Result<ExitCode, String> {
    let began = Instant::now();
    let threads = arguments.threads.max(1);
    let plan = Plan { pairs: true, states: arguments.states, seed: arguments.seed, threads };
    let explorer = plan.run(&mut |explorer, what| {
        let counts = explorer.counts();
        let seconds = began.elapsed().as_secs();
        eprintln!("{seconds:>5} s  {:>9} states, {:>9} distinct  {what}", counts.enumerated, explorer.distinct());
    })?;
    tell(&explorer, began)
}

fn replay(arguments: &ReplayArgs) -> Result<ExitCode, String> {
    let began = Instant::now();
    let (base, workload) = named(&arguments.workload)?;
    let explorer = Explorer::default();
    match arguments.state {
        None => explorer.explore_one(&base, &workload),
        Some(state) => print(&explorer.replay(&base, &workload, state)?)?,
    }
    tell(&explorer, began)
}

fn list() -> Result<ExitCode, String> {
    let directed: Vec<String> = workload::directed().into_iter().map(|workload| workload.name).collect();
    print(&format!("{}\n{}\n", directed.join("\n"), workload::words().join("\n")))?;
    Ok(ExitCode::SUCCESS)
}

fn tell(explorer: &Explorer, began: Instant) -> Result<ExitCode, String> {
    let failures = explorer.failures();
    let failed: String = failures.iter().map(report::failure).collect();
    print(&format!("{}{failed}{:.1} s\n", report::counts(explorer), began.elapsed().as_secs_f64()))?;
    Ok(if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A reader that stops early, such as `head`, is not a failure.
fn print(text: &str) -> Result<(), String> {
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(format!("stdout: {error}")),
        _ => Ok(()),
    }
}
