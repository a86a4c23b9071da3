//! What this machine is: kernel, CPU, memory, block devices, QEMU.
