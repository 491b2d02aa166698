//! When the worker runs, and how far it is: the state of the worker, and the load of the machine.

pub mod load;
pub mod local_time;
pub mod pass;
pub mod portion_size;
pub mod stopwatch;
pub mod system_load;
pub mod worker_state;
