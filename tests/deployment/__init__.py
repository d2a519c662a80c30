"""Tests of the deployment on several machines (`make test-deployment`)."""
