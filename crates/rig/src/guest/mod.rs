//! QEMU guests: kernel, initramfs, command line, QMP.
