"""tmp-storage: non-persistent messages that overflow RAM, in files that do not outlive the process."""
