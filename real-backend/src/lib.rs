//! The Device trait over the CUDA driver.
