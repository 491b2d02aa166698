//! Measures the cost of compressing and expanding a file's blocks in one thread: `cargo run --release -p
//! oncefs-compress --example speed -- FILE [METHOD]...`

use std::error::Error;
use std::time::Instant;

use oncefs_compress::{BLOCK_BYTES, Compressor, Expander, Method};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let data = std::fs::read(arguments.next().ok_or("name a file, and methods")?)?;
    let mut methods = arguments.map(|name| name.parse()).collect::<Result<Vec<Method>, _>>()?;
    if methods.is_empty() {
        methods = vec![Method::Lz4, Method::Zstd(1), Method::Zstd(3)];
    }
    for method in methods {
        measure(method, &data)?;
    }
    Ok(())
}

fn measure(method: Method, data: &[u8]) -> Result<(), Box<dyn Error>> {
    let mut compressor = Compressor::new(method);
    let began = Instant::now();
    let blocks = data.chunks_exact(BLOCK_BYTES);
    let fragments: Vec<Option<Vec<u8>>> =
        blocks.clone().map(|block| compressor.compress(block).map(<[u8]>::to_vec)).collect();
    let packing = began.elapsed().as_secs_f64();
    let bytes: usize = fragments.iter().map(|fragment| fragment.as_ref().map_or(BLOCK_BYTES, Vec::len)).sum();
    let mut expander = Expander::default();
    let mut block = vec![0; BLOCK_BYTES];
    let began = Instant::now();
    for fragment in fragments.iter().flatten() {
        expander.expand(method.coding(), fragment, &mut block)?;
    }
    let unpacking = began.elapsed().as_secs_f64();
    let (all, packed) = (blocks.len().max(1), fragments.iter().flatten().count().max(1));
    println!(
        "{method}: {:.0} MB/s in ({:.1} us a block), {:.0} MB/s out ({:.1} us), ratio {:.2}",
        (all * BLOCK_BYTES) as f64 / 1e6 / packing,
        packing * 1e6 / all as f64,
        (packed * BLOCK_BYTES) as f64 / 1e6 / unpacking,
        unpacking * 1e6 / packed as f64,
        (all * BLOCK_BYTES) as f64 / bytes.max(1) as f64,
    );
    Ok(())
}
