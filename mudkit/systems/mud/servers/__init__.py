"""The machines of the cloud: gateways, processors, the back end, replicas, notifications (Mobius 4, 5)."""
