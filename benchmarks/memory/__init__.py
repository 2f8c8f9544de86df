"""Measures what a memory limit brings: hit ratio and throughput of three traffics under 8 to 512 MiB."""
