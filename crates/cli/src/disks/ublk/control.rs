//! Makes and removes ublk devices: commands to `/dev/ublk-control`.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use io_uring::{IoUring, cqueue, opcode, squeue, types};

use super::wire::{self, Command, Info, InfoBytes, Numbers};

const CONTROL: &str = "/dev/ublk-control";

/// The driver.
pub struct Control {
    device: File,
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
    numbers: Numbers,
}

impl Control {
    /// Opens it. The message says what is missing.
    pub fn open() -> Result<Self, String> {
        let device = File::options().read(true).write(true).open(CONTROL).map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => format!("there is no {CONTROL}: modprobe ublk_drv, or use a loop device"),
            _ => format!("cannot open {CONTROL}: {e}"),
        })?;
        let ring = IoUring::builder().build(4).map_err(|e| format!("cannot use io_uring, which ublk needs: {e}"))?;
        Ok(Self { device, ring, numbers: Numbers::Ioctl })
    }

    /// Makes a device, and returns it with its number.
    pub fn add(&mut self, info: &Info) -> io::Result<Info> {
        let mut bytes = info.encode();
        self.call(Command::Add, info.number, Some(&mut bytes), 0)?;
        Ok(Info::decode(&bytes))
    }

    /// Tells what a device is.
    pub fn info(&mut self, number: u32) -> io::Result<Info> {
        let mut bytes: InfoBytes = [0; size_of::<InfoBytes>()];
        self.call(Command::Info, number, Some(&mut bytes), 0)?;
        Ok(Info::decode(&bytes))
    }

    /// Sets what a device can do, before it starts.
    pub fn set_parameters(&mut self, number: u32, parameters: &mut [u8]) -> io::Result<()> {
        self.call(Command::SetParameters, number, Some(parameters), 0)
    }

    /// Makes the block device, which a thread of this process serves already. Returns once it can be used.
    pub fn start(&mut self, number: u32) -> io::Result<()> {
        self.call(Command::Start, number, None, std::process::id().into())
    }

    /// Ends the block device, once the requests under way are answered. Not from the thread that answers them.
    pub fn stop(&mut self, number: u32) -> io::Result<()> {
        self.call(Command::Stop, number, None, 0)
    }

    /// Removes a stopped device. Waits until its server has closed it.
    pub fn remove(&mut self, number: u32) -> io::Result<()> {
        self.call(Command::Remove, number, None, 0)
    }

    /// The form of numbers that this kernel takes, once it took one.
    pub fn numbers(&self) -> Numbers {
        self.numbers
    }

    fn call(&mut self, command: Command, number: u32, mut buffer: Option<&mut [u8]>, value: u64) -> io::Result<()> {
        match self.call_as(self.numbers, command, number, buffer.as_deref_mut(), value) {
            // A kernel that does not know the number, or another error that the second try repeats.
            Err(e) if self.numbers == Numbers::Ioctl && is_unknown(&e) => {
                self.call_as(Numbers::Plain, command, number, buffer, value)?;
                self.numbers = Numbers::Plain;
                Ok(())
            }
            result => result,
        }
    }

    fn call_as(
        &mut self,
        numbers: Numbers,
        command: Command,
        number: u32,
        buffer: Option<&mut [u8]>,
        value: u64,
    ) -> io::Result<()> {
        let buffer = buffer.map(|bytes| (bytes.as_mut_ptr() as u64, bytes.len() as u16));
        let fields = wire::control(number, buffer, value);
        let device = types::Fd(self.device.as_raw_fd());
        let entry = opcode::UringCmd80::new(device, numbers.command(command)).cmd(fields).build();
        // SAFETY: the only memory that the entry names is the buffer, which outlives the wait for the answer below.
        unsafe { self.ring.submission().push(&entry) }.expect("the ring is empty");
        loop {
            match self.ring.submit_and_wait(1) {
                Err(e) if e.kind() != io::ErrorKind::Interrupted => return Err(e),
                _ => {}
            }
            if let Some(answer) = self.ring.completion().next() {
                let result = answer.result();
                return if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(()) };
            }
        }
    }
}

/// Linux 6.1 looks for the device before it looks at the number, and a new device is not there.
fn is_unknown(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP | libc::ENOTTY | libc::ENODEV))
}
