#!/usr/bin/env bash
# Fill deploy/secrets with random passwords for docker compose; what is there already stays.
# The folder is yours alone; its files can be read by the containers' own users.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../deploy/secrets"
chmod 0700 .
umask 022

random() { python3 -c 'import secrets; print(secrets.token_urlsafe(32), end="")'; }

put() { # NAME TEXT
    if [[ -e $1 ]]; then
        echo "kept    deploy/secrets/$1"
    else
        printf '%s' "$2" >"$1"
        echo "written deploy/secrets/$1"
    fi
}

put postgres_password "$(random)"
put store_url "postgresql+psycopg://nestmap:$(<postgres_password)@postgres:5432/nestmap"
put broker_password "$(random)"
put broker_url "amqp://nestmap:$(<broker_password)@rabbitmq:5672/nestmap"
put rabbitmq_conf "default_user = nestmap
default_pass = $(<broker_password)
default_vhost = nestmap
consumer_timeout = 3600000
"
put grafana_password "$(random)"
# A board's one-time code comes from the service: POST /v1/enrolments.
put board_code ""
