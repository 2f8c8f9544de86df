"""Non-persistent overflow on its way from RAM to tmp-storage."""
