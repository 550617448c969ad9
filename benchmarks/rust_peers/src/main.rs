//! Durable commits of two write-ahead logs in Rust: `rust_peers NAME FOLDER THREADS SECONDS`.
//!
//! Each thread commits 256 bytes and waits until they are durable, as fast as it can. Prints
//! commits per second and microseconds of processor time per commit as JSON.

use std::sync::Arc;
use std::time::{Duration, Instant};

const BODY: [u8; 256] = [0; 256];

fn processor_seconds() -> f64 {
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

fn main() {
    let given: Vec<String> = std::env::args().collect();
    let (name, folder) = (given[1].as_str(), given[2].as_str());
    let threads: usize = given[3].parse().unwrap();
    let seconds: f64 = given[4].parse().unwrap();
    let commit: Arc<dyn Fn() + Send + Sync> = match name {
        "okaywal" => {
            let log = okaywal::WriteAheadLog::recover(folder, okaywal::LogVoid).unwrap();
            Arc::new(move || {
                let mut entry = log.begin_entry().unwrap();
                entry.write_chunk(&BODY).unwrap();
                entry.commit().unwrap();
            })
        }
        "wal-db" => {
            let log = wal_db::Wal::open(format!("{folder}/wal")).unwrap();
            Arc::new(move || {
                let _ = log.append_and_sync(&BODY).unwrap();
            })
        }
        _ => panic!("unknown: {name}"),
    };
    commit();
    let used = processor_seconds();
    let begin = Instant::now();
    let end = begin + Duration::from_secs_f64(seconds);
    let crew: Vec<_> = (0..threads)
        .map(|_| {
            let commit = commit.clone();
            std::thread::spawn(move || {
                let mut count = 0u64;
                while Instant::now() < end {
                    commit();
                    count += 1;
                }
                count
            })
        })
        .collect();
    let count: u64 = crew.into_iter().map(|one| one.join().unwrap()).sum();
    let rate = count as f64 / begin.elapsed().as_secs_f64();
    let each = (processor_seconds() - used) / count as f64 * 1e6;
    println!("{{\"rate\": {rate}, \"processor_us\": {each}}}");
}
