"""What a memory limit brings: hit ratio and throughput of three traffics under limits from 8 to 512 MiB."""
