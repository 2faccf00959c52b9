// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Types - prints the types of JFR's native events: number, name, settings, fields
 *
 *   java Types
 *
 * Registers an event of its own before JFR is created, as any program may.
 */

import java.util.List;
import java.util.stream.Collectors;
import jdk.jfr.Event;
import jdk.jfr.EventType;
import jdk.jfr.FlightRecorder;
import jdk.jfr.SettingDescriptor;

public final class Types {
    /** An event in Java. */
    static final class Own extends Event {
    }

    // Numbers of classes begin there.
    private static final int CLASSES = 500;

    private static String names(List<SettingDescriptor> settings) {
        return settings.stream().map(SettingDescriptor::getName).collect(Collectors.joining(" "));
    }

    public static void main(String[] args) {
        FlightRecorder.register(Own.class);
        for (EventType type : FlightRecorder.getFlightRecorder().getEventTypes()) {
            if (type.getId() < CLASSES) {
                String fields = type.getFields().stream()
                        .map(field -> field.getTypeName() + " " + field.getName())
                        .collect(Collectors.joining(", "));
                System.out.println(type.getId() + " " + type.getName() + " " + type.isEnabled()
                        + ": " + names(type.getSettingDescriptors()) + ": " + fields);
            }
        }
    }
}
