//! A small matrix product with its result, then a large one with its time, on the best available
//! device.
use bornite::{Device, Result, Tensor};

fn main() -> Result<()> {
    let (device, why) = Device::auto_with_reason();
    why.inspect(|why| println!("no GPU, using the CPU: {why}"));
    let a = Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0], &[2, 2], device);
    let b = Tensor::from_slice(&[5.0f32, 6.0, 7.0, 8.0], &[2, 2], device);
    println!("[[1,2],[3,4]]·[[5,6],[7,8]] = {:?} on {device}", a.matmul(&b).to_vec::<f32>()?);

    let x = Tensor::from_slice(&vec![0.5f32; 1 << 20], &[1024, 1024], device);
    x.matmul(&x).realize()?; // compiles
    device.synchronize()?;
    let start = std::time::Instant::now();
    x.matmul(&x).realize()?;
    device.synchronize()?;
    println!("1024² matmul: {:.3} TFLOP/s", 2.0 * 1024f64.powi(3) / start.elapsed().as_secs_f64() / 1e12);
    Ok(())
}
