//! Time of steps on a GPU, and how long it waits between them. Events in the stream measure it, so
//! that nothing waits for the GPU.

use bornite::Device;
use bornite_cuda::DeviceClock;
use bornite_support::profile::{Clock, Stopwatch, Times};

/// Measures the work of steps on a GPU.
#[derive(Default)]
pub(super) struct GpuTimer {
    /// End of the last step that was read, in milliseconds of the process.
    last_end_ms: Option<f64>,
}

/// Work of a step on a GPU; nothing on other devices and where timing is not possible.
#[derive(Default)]
pub(super) struct GpuSpan(Option<Box<dyn Stopwatch>>);

impl GpuSpan {
    /// Starts at the device's next work.
    pub fn start(device: Device) -> GpuSpan {
        let Some(ordinal) = device.cuda_ordinal() else { return GpuSpan(None) };
        let Ok(gpu) = bornite_cuda::Device::open(ordinal) else { return GpuSpan(None) };
        GpuSpan(DeviceClock(&gpu).start().ok().flatten())
    }

    /// Ends after the work that was launched so far.
    pub fn stop(&mut self) {
        if self.0.as_mut().is_some_and(|stopwatch| stopwatch.stop().is_err()) {
            self.0 = None;
        }
    }
}

impl GpuTimer {
    /// Returns the fraction of the time since the end of the previous step in which the GPU waited
    /// for this one; waits for its end.
    pub fn idle_share(&mut self, span: &mut GpuSpan) -> Option<f64> {
        let times = span.0.as_mut()?.times().ok()?;
        idle_share(self.last_end_ms.replace(times.start_ms + times.duration_ms), times)
    }

    /// Forgets the previous step: what the device does until the next one is not part of a step.
    pub fn pause(&mut self) {
        self.last_end_ms = None;
    }
}

fn idle_share(last_end_ms: Option<f64>, step: Times) -> Option<f64> {
    let idle_ms = (step.start_ms - last_end_ms?).max(0.0);
    let total_ms = idle_ms + step.duration_ms;
    (total_ms > 0.0).then(|| idle_ms / total_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_is_the_gap_between_steps() {
        let step = |start_ms, duration_ms| Times { start_ms, duration_ms };
        assert_eq!(idle_share(None, step(0.0, 5.0)), None);
        assert_eq!(idle_share(Some(10.0), step(10.0, 5.0)), Some(0.0));
        assert_eq!(idle_share(Some(10.0), step(15.0, 15.0)), Some(0.25));
        // The clock of events is coarse.
        assert_eq!(idle_share(Some(10.0), step(9.999, 5.0)), Some(0.0));
        assert_eq!(idle_share(Some(10.0), step(10.0, 0.0)), None);
        assert_eq!(GpuTimer::default().idle_share(&mut GpuSpan::start(Device::cpu())), None);
    }
}
